// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <cub/device/device_radix_sort.cuh>

#include "cuda/fixed_order.cuh"
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

}  // namespace

Status Order::ask(std::int64_t ids, Arena* arena) {
  SOK_CUDA_RETURN_IF_ERROR(
      cub::DeviceRadixSort::SortKeys(nullptr, scratch_bytes, order, sorted, ids, 0, 64));
  arena->ask(ids, &order);
  arena->ask(ids, &sorted);
  arena->ask(static_cast<std::int64_t>(scratch_bytes), &scratch);
  return {};
}

Status rank_in_order(Context& context, Order& order, std::int64_t ids, std::uint32_t* ranks) {
  SOK_CUDA_RETURN_IF_ERROR(cub::DeviceRadixSort::SortKeys(order.scratch, order.scratch_bytes,
                                                          order.order, order.sorted, ids, 0, 64,
                                                          stream_of(context)));
  return launch(context, "rank", rank_kernel, ids, tuning::kBlock, order.sorted, ids, ranks);
}

Status sort_by_position(Context& context, std::uint32_t* positions, std::int64_t count,
                        std::uint32_t* numbers) {
  Arena arena(context);
  std::uint32_t *sorted = nullptr, *counted = nullptr;
  char* scratch = nullptr;
  std::size_t bytes = 0;
  SOK_CUDA_RETURN_IF_ERROR(cub::DeviceRadixSort::SortPairs(nullptr, bytes, positions, sorted,
                                                           counted, numbers, count, 0, 32));
  arena.ask(count, &sorted);
  arena.ask(count, &counted);
  arena.ask(static_cast<std::int64_t>(bytes), &scratch);
  SOK_RETURN_IF_ERROR(arena.allocate("Merge"));
  SOK_RETURN_IF_ERROR(
      launch(context, "count_up", count_up_kernel, count, tuning::kBlock, counted, count));
  SOK_CUDA_RETURN_IF_ERROR(cub::DeviceRadixSort::SortPairs(
      scratch, bytes, positions, sorted, counted, numbers, count, 0, 32, stream_of(context)));
  return {};
}

}  // namespace sok::cuda
