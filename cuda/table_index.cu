// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The index of a table: how it grows, and what is found by walking through all of it.
#include <algorithm>

#include "cuda/launch.cuh"
#include "cuda/resolve.cuh"
#include "cuda/table.h"
#include "cuda/table_memory.cuh"
#include "cuda/tuning.h"

namespace sok::cuda {
namespace {

// Calls f(slot) for the slots of an index that are full, one thread a control word.
template <typename F>
__device__ void for_each_slot(const IndexRef& index, F&& f) {
  const std::int64_t words = 2 * static_cast<std::int64_t>(index.groups);
  for (std::int64_t word = thread_index(); word < words; word += thread_count()) {
    for (std::uint64_t full = match_full(index.control[word]); full != 0; full &= full - 1) {
      f(index.slots[word * 8 + first_byte(full)]);
    }
  }
}

// Whole warps go round together: they insert together.
__global__ void rebuild_kernel(IndexRef from, IndexRef to) {
  const std::int64_t words = 2 * static_cast<std::int64_t>(from.groups);
  const std::int64_t padded = (words + kWarp - 1) / kWarp * kWarp;
  for (std::int64_t word = thread_index(); word < padded; word += thread_count()) {
    std::uint64_t full = word < words ? match_full(from.control[word]) : 0;
    while (__any_sync(kFullMask, full != 0)) {
      const Slot slot = full != 0 ? from.slots[word * 8 + first_byte(full)] : Slot{0, kNoRow};
      insert_in_rounds(full != 0, to, slot.key, to.hash(slot.key), [&](bool) { return slot.row; });
      full &= full - 1;
    }
  }
}

__global__ void entries_kernel(IndexRef index, unsigned long long* count, Key* keys, Row* rows) {
  for_each_slot(index, [&](const Slot& slot) {
    const unsigned long long at = atomicAdd(count, 1ULL);
    keys[at] = slot.key;
    rows[at] = slot.row;
  });
}

__global__ void static_entries_kernel(std::int64_t count, Key* keys, Row* rows) {
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) {
    keys[i] = i;
    rows[i] = static_cast<Row>(i);
  }
}

__global__ void probe_length_kernel(IndexRef index, unsigned long long* groups_read) {
  for_each_slot(index, [&](const Slot& slot) {
    const std::uint32_t home = index.home(index.hash(slot.key));
    const auto group = static_cast<std::uint32_t>((&slot - index.slots) / kGroup);
    atomicAdd(groups_read, 1ULL + (group >= home ? group - home : group + index.groups - home));
  });
}

__global__ void count_deleted_kernel(IndexRef index, unsigned long long* deleted) {
  const std::int64_t words = 2 * static_cast<std::int64_t>(index.groups);
  unsigned mine = 0;
  for (std::int64_t word = thread_index(); word < words; word += thread_count()) {
    mine += __popcll(match_deleted(index.control[word]));
  }
  const unsigned of_warp = __reduce_add_sync(kFullMask, mine);
  if (threadIdx.x % kWarp == 0 && of_warp > 0) atomicAdd(deleted, of_warp);
}

__global__ void erase_kernel(IndexRef index, const Key* keys, std::int64_t count, Row* free_rows,
                             unsigned long long* erased) {
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) {
    const std::uint32_t slot = index.find_slot(keys[i], index.hash(keys[i]));
    if (slot == kNoRow) continue;
    std::uint64_t* word = index.control + slot / 8;
    const std::uint32_t shift = slot % 8 * 8;
    // One thread marks the slot, also when a key is given twice.
    for (;;) {
      const std::uint64_t seen = load_acquire(word);
      if (((seen >> shift) & 0x80) != 0) break;
      const std::uint64_t marked = (seen & ~(0xffULL << shift)) | (kDeletedByte << shift);
      if (!compare_and_swap(word, seen, marked)) continue;
      free_rows[atomicAdd(erased, 1ULL)] = index.slots[slot].row;
      index.store_slot(slot, keys[i], kNoRow);  // see forget_slots
      break;
    }
  }
}

// Slots start, and end, as no row. A search without ordering that meets a slot whose control byte
// is seen before its contents then finds nothing, and not a row that the key had before it was
// erased.
Status forget_slots(Context& context, const Buffer& slots) {
  SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(slots.data, 0xff, slots.bytes, stream_of(context)));
  return {};
}

}  // namespace

Status Table::grow_index(Context& context, std::int64_t keys) {
  if (config_.max_capacity > 0) keys = std::min(keys, config_.max_capacity);
  const std::uint32_t groups = groups_for(std::max(keys, live_));
  const std::size_t control_bytes = std::size_t{groups} * kGroup;
  const std::size_t slot_bytes = std::size_t{groups} * kGroup * sizeof(Slot);
  Buffer control = context.allocate(control_bytes);
  Buffer slots = context.allocate(slot_bytes);
  if (control.data == nullptr || slots.data == nullptr) {
    return no_memory("the index", control_bytes + slot_bytes);
  }
  SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(control.data, static_cast<int>(kEmptyByte),
                                           control_bytes, stream_of(context)));
  SOK_RETURN_IF_ERROR(forget_slots(context, slots));
  IndexRef grown;
  grown.control = control.as<std::uint64_t>();
  grown.slots = slots.as<Slot>();
  grown.groups = groups;
  grown.hash_mask = config_.collide ? 0 : ~0ULL;
  SOK_RETURN_IF_ERROR(launch(context, "rebuild", rebuild_kernel, 2 * std::int64_t{index_.groups},
                             tuning::kBlock, index_, grown));
  if (control_.data != nullptr) ++growths_;
  index_ = grown;
  control_ = std::move(control);
  slots_ = std::move(slots);
  deleted_ = 0;
  view_is_current_ = false;
  return {};
}

// Insertions do not count the deleted slots that they take: the kernels through which all ids pass
// would have to, for a number that matters only once the index seems to be full.
Status Table::count_deleted(Context& context) {
  if (deleted_ == 0) return {};
  Buffer counter;
  SOK_RETURN_IF_ERROR(zeroed(context, sizeof(unsigned long long), &counter));
  // Threads that have many words each add up their counts with few atomic operations.
  const std::int64_t threads = std::min<std::int64_t>(2 * std::int64_t{index_.groups}, 1 << 17);
  SOK_RETURN_IF_ERROR(launch(context, "count_deleted", count_deleted_kernel, threads,
                             tuning::kBlock, index_, counter.as<unsigned long long>()));
  return read_counter(context, counter.data, &deleted_);
}

Status Table::entries(Context& context, std::int64_t* count, Buffer* keys, Buffer* rows) {
  SOK_RETURN_IF_ERROR(size(context, count));
  *keys = context.allocate(std::max<std::int64_t>(1, *count) * sizeof(Key));
  *rows = context.allocate(std::max<std::int64_t>(1, *count) * sizeof(Row));
  if (keys->data == nullptr || rows->data == nullptr) {
    return no_memory("its list of keys", static_cast<std::size_t>(*count) * sizeof(Key));
  }
  if (config_.is_static()) {
    return launch(context, "static_entries", static_entries_kernel, *count, tuning::kBlock, *count,
                  keys->as<Key>(), rows->as<Row>());
  }
  Buffer cursor;
  SOK_RETURN_IF_ERROR(zeroed(context, sizeof(unsigned long long), &cursor));
  return launch(context, "entries", entries_kernel, 2 * std::int64_t{index_.groups}, tuning::kBlock,
                index_, cursor.as<unsigned long long>(), keys->as<Key>(), rows->as<Row>());
}

Status Table::erase(Context& context, const Key* keys, std::int64_t count, std::int64_t* erased) {
  SOK_RETURN_IF_ERROR(synchronise_counters(context));
  Buffer free_rows = context.allocate(std::max<std::int64_t>(1, free_ + count) * sizeof(Row));
  Buffer counter;
  if (free_rows.data == nullptr) {
    return no_memory("its list of free rows",
                     static_cast<std::size_t>(free_ + count) * sizeof(Row));
  }
  SOK_RETURN_IF_ERROR(zeroed(context, sizeof(unsigned long long), &counter));
  if (free_ > 0) {
    SOK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(free_rows.data, free_rows_.data, free_ * sizeof(Row),
                                             cudaMemcpyDeviceToDevice, stream_of(context)));
  }
  SOK_RETURN_IF_ERROR(launch(context, "erase", erase_kernel, count, tuning::kBlock, index_, keys,
                             count, free_rows.as<Row>() + free_, counter.as<unsigned long long>()));
  SOK_RETURN_IF_ERROR(read_counter(context, counter.data, erased));
  free_rows_ = std::move(free_rows);
  free_ += *erased;
  live_ -= *erased;
  deleted_ += *erased;
  total_erased_ += *erased;
  bound_ = live_;  // the counters were synchronised above
  view_is_current_ = false;
  return {};
}

Status Table::clear(Context& context) {
  if (config_.is_static()) {
    // The values stay; states start anew.
    for (std::size_t i = 1; i < planes_.size(); ++i) {
      for (std::size_t s = 0; s < slabs_; ++s) {
        SOK_RETURN_IF_ERROR(fill_initial(context, planes_[i], s));
      }
    }
    return {};
  }
  SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(control_.data, static_cast<int>(kEmptyByte),
                                           control_.bytes, stream_of(context)));
  SOK_RETURN_IF_ERROR(forget_slots(context, slots_));
  SOK_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(taken_.data, 0, sizeof(unsigned long long), stream_of(context)));
  live_ = free_ = next_ = deleted_ = bound_ = 0;
  settled_round_ = round_;
  pending_.clear();
  view_is_current_ = false;
  return {};
}

Status Table::stats(Context& context, std::vector<std::pair<std::string, std::int64_t>>* stats) {
  std::int64_t rows = 0, groups_read = 0;
  SOK_RETURN_IF_ERROR(size(context, &rows));
  if (!config_.is_static()) {
    SOK_RETURN_IF_ERROR(count_deleted(context));
    Buffer counter;
    SOK_RETURN_IF_ERROR(zeroed(context, sizeof(unsigned long long), &counter));
    SOK_RETURN_IF_ERROR(launch(context, "probe_length", probe_length_kernel,
                               2 * std::int64_t{index_.groups}, tuning::kBlock, index_,
                               counter.as<unsigned long long>()));
    SOK_RETURN_IF_ERROR(read_counter(context, counter.data, &groups_read));
  }
  *stats = {{"rows", rows},
            {"row_limit", row_limit()},
            {"index_slots", std::int64_t{index_.groups} * kGroup},
            {"deleted_slots", deleted_},
            {"groups_read_to_find_all", groups_read},
            {"bytes", bytes()},
            {"pinned_bytes", slab_bytes(true)},
            {"inserted", config_.is_static() ? 0 : live_ + total_erased_},
            {"erased", total_erased_},
            {"index_growths", growths_}};
  return {};
}

}  // namespace sok::cuda
