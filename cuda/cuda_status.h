// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CUDA_CUDA_STATUS_H_
#define SOK_CUDA_CUDA_STATUS_H_

#include <cuda_runtime.h>

#include "cc_ops/core/status.h"

namespace sok::cuda {

inline Status cuda_status(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  // Reported here; the thread's next launch must not report it again.
  static_cast<void>(cudaGetLastError());
  return {error == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kInternal,
          concat("CUDA: ", what, ": ", cudaGetErrorName(error), ": ", cudaGetErrorString(error))};
}

#define SOK_CUDA_RETURN_IF_ERROR(call) SOK_RETURN_IF_ERROR(::sok::cuda::cuda_status((call), #call))

}  // namespace sok::cuda

#endif  // SOK_CUDA_CUDA_STATUS_H_
