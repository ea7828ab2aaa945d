// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_KERNELS_UPDATE_REQUEST_H_
#define SOK_KERNELS_UPDATE_REQUEST_H_

#include "cc_ops/core/optimizer_spec.h"
#include "tensorflow/core/framework/tensor.h"

namespace sok {

// The scalars of one step, where the device wants them.
struct StepTensors {
  const tensorflow::Tensor* iterations;  // steps before this one
  const tensorflow::Tensor* scale;
  const tensorflow::Tensor* apply;
};

// One table's part of an update, as the op has it.
struct UpdateRequest {
  const OptimizerSpec* optimizer = nullptr;
  Reach reach = Reach::kLocal;
  const tensorflow::Tensor* keys = nullptr;
  const tensorflow::Tensor* gradients = nullptr;
  const tensorflow::Tensor* hyper = nullptr;
  float initial = 0;  // of the states that start at a hyper-parameter
  bool unique = false;
};

}  // namespace sok

#endif  // SOK_KERNELS_UPDATE_REQUEST_H_
