// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of the dot interaction get.
#ifndef SOK_CUDA_INTERACTION_CALL_CUH_
#define SOK_CUDA_INTERACTION_CALL_CUH_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc_ops/core/interaction.h"
#include "cuda/launch.cuh"

namespace sok::cuda {

// Of a block, at most; a warp an example.
constexpr int kInteractionWarps = 4;

struct InteractionArgs {
  int count = 0, beside = 0;
  std::int64_t batch = 0, width = 0, columns = 0;
  const void* vectors[kMostVectors];

  explicit InteractionArgs(const Interaction& from)
      : count(from.count()),
        beside(from.beside),
        batch(from.batch),
        width(from.width),
        columns(from.columns()) {
    std::copy(from.vectors.begin(), from.vectors.end(), vectors);
  }
  template <typename T>
  __device__ const T* vector(int i, std::int64_t example) const {
    return static_cast<const T*>(vectors[i]) + example * width;
  }
  __device__ std::int64_t copied() const { return beside * width; }

  // A row of the result: the copies, and the products, which lie in the warp's shared memory.
  template <typename T, typename P>
  __device__ void write_row(std::int64_t example, const P* products, T* out) const {
    const int lane = threadIdx.x % kWarp;
    T* row = out + example * columns;
    for (int i = 0; i < beside; ++i) {
      const T* from = vector<T>(i, example);
      for (std::int64_t c = lane; c < width; c += kWarp) row[i * width + c] = from[c];
    }
    for (int p = lane; p < pair_count(count); p += kWarp) {
      row[copied() + p] = from_float<T>(to_float(products[p]));
    }
  }
};

struct InteractionGradients {
  void* of_vectors[kMostVectors];

  explicit InteractionGradients(const std::vector<void*>& gradients) {
    std::copy(gradients.begin(), gradients.end(), of_vectors);
  }
};

// Whether pieces of `bytes` of all rows are aligned, and no row ends within one.
template <typename Pointer>
bool in_pieces(const Interaction& call, const std::vector<Pointer>& pointers, std::size_t bytes) {
  return call.width * row_type_bytes(call.type) % bytes == 0 &&
         std::all_of(pointers.begin(), pointers.end(), [&](const void* p) {
           return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
         });
}

}  // namespace sok::cuda

#endif  // SOK_CUDA_INTERACTION_CALL_CUH_
