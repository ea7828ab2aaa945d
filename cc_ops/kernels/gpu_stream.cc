// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifdef SOK_WITH_CUDA

#define EIGEN_USE_GPU
#include <atomic>

#include "tensorflow/core/framework/op_kernel.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace sok {
namespace {

std::atomic<bool> synchronise_always{false};
std::atomic<bool> one_order{false};

}  // namespace

void* gpu_stream(tensorflow::OpKernelContext* context) {
  return reinterpret_cast<void*>(context->eigen_gpu_device().stream());
}

bool debug_sync() { return synchronise_always; }
bool fixed_order() { return one_order; }

}  // namespace sok

extern "C" __attribute__((visibility("default"))) void sok_set_debug_sync(bool on) {
  sok::synchronise_always = on;
}

extern "C" __attribute__((visibility("default"))) void sok_set_fixed_order(bool on) {
  sok::one_order = on;
}

#endif  // SOK_WITH_CUDA
