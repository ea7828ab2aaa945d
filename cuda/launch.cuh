// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The only place that launches kernels.
#ifndef SOK_CUDA_LAUNCH_CUH_
#define SOK_CUDA_LAUNCH_CUH_

#include <algorithm>
#include <cstdint>

#include "cuda/context.h"
#include "cuda/cuda_status.h"

namespace sok::cuda {

inline cudaStream_t stream_of(Context& context) {
  return static_cast<cudaStream_t>(context.stream());
}

constexpr int kWarp = 32;
constexpr unsigned kFullMask = 0xffffffffu;

// Enough blocks to fill any device several times over; kernels stride over the rest.
constexpr std::int64_t kMostBlocks = 1 << 20;

inline thread_local std::int64_t launched_by_this_thread = 0;

// Launches `blocks` blocks of `block` threads with `shared` bytes of shared memory. No blocks, no
// launch.
template <typename... Params, typename... Args>
Status launch_blocks(Context& context, const char* name, void (*kernel)(Params...),
                     std::int64_t blocks, int block, std::size_t shared, Args&&... args) {
  if (blocks <= 0) return {};
  ++launched_by_this_thread;
  kernel<<<static_cast<unsigned>(blocks), block, shared, stream_of(context)>>>(
      std::forward<Args>(args)...);
  return cuda_status(cudaGetLastError(), name);
}

// Launches `kernel` with one thread an item, at most kMostBlocks blocks.
template <typename... Params, typename... Args>
Status launch(Context& context, const char* name, void (*kernel)(Params...), std::int64_t items,
              int block, Args&&... args) {
  return launch_blocks(context, name, kernel, std::min((items + block - 1) / block, kMostBlocks),
                       block, 0, std::forward<Args>(args)...);
}

__device__ __forceinline__ std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t thread_count() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace sok::cuda

#endif  // SOK_CUDA_LAUNCH_CUH_
