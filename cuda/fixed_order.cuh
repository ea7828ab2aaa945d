// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The order of the batch, where atomic operations have ranked the ids of a row in an order that
// differs from run to run.
#ifndef SOK_CUDA_FIXED_ORDER_CUH_
#define SOK_CUDA_FIXED_ORDER_CUH_

#include <cstdint>

#include "cc_ops/core/status.h"
#include "cuda/merge.cuh"

namespace sok::cuda {

// What the ids of a batch are sorted by: the place where their row's segment begins, then their own
// position. Segments fill the places without gaps, so an id's position among the sorted is its
// place.
constexpr unsigned long long kNotOrdered = ~0ULL;
__device__ inline unsigned long long in_order(std::uint32_t segment, std::int64_t position) {
  return static_cast<unsigned long long>(segment) << 32 | static_cast<std::uint32_t>(position);
}

// What is sorted, by position an id's in_order() or kNotOrdered, and the memory that sorting takes.
struct Order {
  unsigned long long* order = nullptr;
  unsigned long long* sorted = nullptr;
  char* scratch = nullptr;
  std::size_t scratch_bytes = 0;

  Status ask(std::int64_t ids, Arena* arena);
};

// Sorts, and gives each ordered id its rank in its segment: how many of its ids come earlier in the
// batch.
Status rank_in_order(Context& context, Order& order, std::int64_t ids, std::uint32_t* ranks);

// The numbers 0 .. count - 1 in the order of their `positions`, which are all different.
Status sort_by_position(Context& context, std::uint32_t* positions, std::int64_t count,
                        std::uint32_t* numbers);

}  // namespace sok::cuda

#endif  // SOK_CUDA_FIXED_ORDER_CUH_
