// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/launch.cuh"
#include "cuda/stages.h"

namespace sok::cuda {
namespace {

__global__ void hyper_parameters_kernel(const __grid_constant__ HyperParameters parameters,
                                        float* out) {
  const auto i = static_cast<int>(threadIdx.x);
  if (i < parameters.count) out[i] = parameters[i];
}

}  // namespace

Status hyper_parameters(Context& context, const HyperParameters& parameters, float* out) {
  return launch(context, "hyper_parameters", hyper_parameters_kernel, parameters.count, kWarp,
                parameters, out);
}

}  // namespace sok::cuda
