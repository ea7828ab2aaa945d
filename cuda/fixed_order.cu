// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/fixed_order.cuh"

#include <cub/device/device_radix_sort.cuh>

#include "cuda/launch.cuh"
#include "cuda/merge.cuh"
#include "cuda/tuning.h"

namespace sok::cuda {
namespace {

__global__ void rank_kernel(const unsigned long long* sorted, std::int64_t ids,
                            std::uint32_t* ranks) {
  for (std::int64_t place = thread_index(); place < ids; place += thread_count()) {
    const unsigned long long one = sorted[place];
    if (one == kNotOrdered) continue;
    ranks[static_cast<std::uint32_t>(one)] = static_cast<std::uint32_t>(place - (one >> 32));
  }
}

__global__ void count_up_kernel(std::uint32_t* numbers, std::int64_t count) {
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) {
    numbers[i] = static_cast<std::uint32_t>(i);
  }
}

// Calls sort(scratch, bytes) twice, as CUB wants it: for the size of its scratch, and to sort.
template <typename Sort>
Status sorted(Context& context, Sort&& sort) {
  std::size_t bytes = 0;
  SOK_CUDA_RETURN_IF_ERROR(sort(nullptr, bytes));
  const Buffer scratch = context.allocate(bytes);
  if (scratch.data == nullptr) {
    return resource_exhausted("no device memory to sort ids: ", bytes, " bytes asked for");
  }
  SOK_CUDA_RETURN_IF_ERROR(sort(scratch.data, bytes));
  return {};
}

}  // namespace

Status rank_in_order(Context& context, unsigned long long* order, std::int64_t ids,
                     std::uint32_t* ranks) {
  Arena arena(context);
  unsigned long long* in_place_order = nullptr;
  arena.ask(ids, &in_place_order);
  SOK_RETURN_IF_ERROR(arena.allocate("Merge"));
  SOK_RETURN_IF_ERROR(sorted(context, [&](void* scratch, std::size_t& bytes) {
    return cub::DeviceRadixSort::SortKeys(scratch, bytes, order, in_place_order, ids, 0, 64,
                                          stream_of(context));
  }));
  return launch(context, "rank", rank_kernel, ids, tuning::kBlock, in_place_order, ids, ranks);
}

Status sort_by_position(Context& context, std::uint32_t* positions, std::int64_t count,
                        std::uint32_t* numbers) {
  Arena arena(context);
  std::uint32_t *sorted_positions = nullptr, *counted = nullptr;
  arena.ask(count, &sorted_positions);
  arena.ask(count, &counted);
  SOK_RETURN_IF_ERROR(arena.allocate("Merge"));
  SOK_RETURN_IF_ERROR(
      launch(context, "count_up", count_up_kernel, count, tuning::kBlock, counted, count));
  return sorted(context, [&](void* scratch, std::size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(scratch, bytes, positions, sorted_positions, counted,
                                           numbers, count, 0, 32, stream_of(context));
  });
}

}  // namespace sok::cuda
