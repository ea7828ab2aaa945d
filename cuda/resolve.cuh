// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Device functions from an id to its row, and the first values of a new row.
//
// The functions of whole warps here bring the lanes together (__syncwarp) before they exchange
// values: a checking tool may return from each use of memory lane by lane.
#ifndef SOK_CUDA_RESOLVE_CUH_
#define SOK_CUDA_RESOLVE_CUH_

#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/table_view.h"
#include "cuda/vec.cuh"

namespace sok::cuda {

// Keeps the first id that a static table refuses; until the host has seen it, nothing is updated.
__device__ inline void record_offending(const TableView& table, const Offending& what) {
  if (atomicExch(table.suppressed, 1u) != 0) return;
  volatile Offending* record = table.offending;
  record->value = what.value;
  record->position = what.position;
  record->before = what.before;
  record->ids = what.ids;
  record->feature = what.feature;
  __threadfence_system();
  record->raised = 1;
}

__device__ __forceinline__ Row static_row(const TableView& table, Key id, std::int64_t position) {
  if (id >= 0 && id < table.rows) return static_cast<Row>(id);
  if (table.out_of_range == OutOfRange::kClip && table.rows > 0) {
    return id < 0 ? 0 : static_cast<Row>(table.rows - 1);
  }
  if (table.out_of_range == OutOfRange::kError)
    record_offending(table, {id, position, 0, 0, -1, 0});
  return kNoRow;
}

__device__ __forceinline__ Row find_row(const TableView& table, Key id, std::int64_t position) {
  if (table.is_static()) return static_row(table, id, position);
  return table.index.find(id, table.index.hash(id));
}

// A number of its counter for each lane that wants one; lanes with one counter share one atomic
// operation. The whole warp must call it.
__device__ __forceinline__ std::int64_t take_number(bool wanted, unsigned long long* counter) {
  const int lane = threadIdx.x & 31;
  std::int64_t number = 0;
  __syncwarp();
  for (unsigned waiting = __ballot_sync(kFullMask, wanted); waiting != 0;) {
    const int leader = __ffs(static_cast<int>(waiting)) - 1;
    const auto here = reinterpret_cast<unsigned long long>(counter);
    const auto current = __shfl_sync(kFullMask, here, leader);
    const bool mine = wanted && here == current;
    const unsigned together = __ballot_sync(kFullMask, mine);
    unsigned long long first = 0;
    if (lane == leader) {
      first = atomicAdd(counter, static_cast<unsigned long long>(__popc(together)));
    }
    __syncwarp();
    first = __shfl_sync(kFullMask, first, leader);
    if (mine) {
      number = static_cast<std::int64_t>(first) + __popc(together & ((1u << lane) - 1));
    }
    waiting &= ~together;
  }
  return number;
}

// Finds or inserts the keys of the lanes that are `waiting` for it; a lane that has claimed a slot
// gets its row from row_of(claimed), which the whole warp calls. The whole warp must call this: what
// lanes claim in a round they publish in it, so that no lane waits for another of its warp. (One
// that did would rely on the hardware to run lanes of a warp that have parted in turns.)
template <typename RowOf>
__device__ __forceinline__ FoundOrInserted insert_in_rounds(bool waiting, const IndexRef& index,
                                                            Key key, std::uint64_t hash,
                                                            RowOf&& row_of) {
  using Outcome = IndexRef::Outcome;
  FoundOrInserted found{kNoRow, false};
  for (;;) {
    __syncwarp();
    if (!__any_sync(kFullMask, waiting)) return found;
    const IndexRef::Claim claim = waiting ? index.claim(key, hash) : IndexRef::Claim();
    const bool claimed = claim.outcome == Outcome::kClaimed;
    const Row row = row_of(claimed);
    if (claimed) {
      found = {row, true, claim.slot, claim.reused};
      index.publish(claim.slot, key, hash, found.row);
    } else if (claim.outcome != Outcome::kAgain) {
      found.row = claim.row;
    }
    waiting = waiting && claim.outcome == Outcome::kAgain;
  }
}

// The same, where the row of a new key is row_of(number), of a number of the counter.
template <typename RowOf>
__device__ __forceinline__ FoundOrInserted find_or_insert(bool waiting, const IndexRef& index,
                                                          Key key, std::uint64_t hash,
                                                          unsigned long long* counter,
                                                          RowOf&& row_of) {
  return insert_in_rounds(waiting, index, key, hash, [&](bool claimed) {
    const std::int64_t number = take_number(claimed, counter);
    return claimed ? row_of(number) : kNoRow;
  });
}

// Finds or inserts the ids of the lanes that have one. The whole warp must call it; the caller
// initialises inserted rows.
__device__ __forceinline__ FoundOrInserted insert_row(const TableView& table, bool has_id, Key id,
                                                      std::int64_t position) {
  Row row = kNoRow;
  std::uint64_t hash = 0;
  bool waiting = false;
  if (has_id && table.is_static()) {
    row = static_row(table, id, position);
  } else if (has_id) {
    hash = table.index.hash(id);
    // Nearly all ids are there: look without ordering first. What this misses because it is just
    // being inserted, the ordered search below finds.
    row = table.index.find(id, hash);
    waiting = row == kNoRow;
  }
  const FoundOrInserted found =
      find_or_insert(waiting, table.index, id, hash, table.source.taken,
                     [&](std::int64_t number) { return table.source.row(number); });
  return waiting ? found : FoundOrInserted{row, false};
}

template <typename T>
__device__ void initialize_values(const TableView& table, const Tile& tile, Key key, Row row) {
  T* out = table.values<T>().row(row);
  for (std::int64_t c = tile.lane * 4; c < table.width; c += tile.lanes * 4) {
    Vec<4> four;
    table.initializer.block(key, static_cast<std::uint32_t>(c >> 2), four.x);
    if (table.width % 4 == 0) {
      store<T, 4>(out + c, four);
    } else {
      for (int i = 0; i < 4 && c + i < table.width; ++i) out[c + i] = from_float<T>(four.x[i]);
    }
  }
}

// Initialises the rows that lanes of this warp inserted, a tile a row. The whole warp must call it.
__device__ inline void initialize_inserted(const TableView& table, bool inserted, Key key,
                                           Row row) {
  __syncwarp();
  unsigned left = __ballot_sync(kFullMask, inserted);
  if (left == 0) return;
  const Tile tile(lanes_for(table.width, 4));
  while (left != 0) {
    int from = -1;
    for (int t = 0; t < tile.tiles && left != 0; ++t, left &= left - 1) {
      if (t == tile.number) from = __ffs(static_cast<int>(left)) - 1;
    }
    __syncwarp();
    const Key new_key = __shfl_sync(kFullMask, key, from < 0 ? 0 : from);
    const Row new_row = __shfl_sync(kFullMask, row, from < 0 ? 0 : from);
    if (from < 0) continue;
    if (table.row_type == RowType::kFloat32) {
      initialize_values<float>(table, tile, new_key, new_row);
    } else if (table.row_type == RowType::kFloat16) {
      initialize_values<Half>(table, tile, new_key, new_row);
    } else {
      initialize_values<BFloat16>(table, tile, new_key, new_row);
    }
    for (int s = 0; s < table.state_count; ++s) {
      const StateView& state = table.states[s];
      float* out = state.plane(table.shape).row(new_row);
      for (std::int64_t c = tile.lane; c < state.width; c += tile.lanes) out[c] = state.initial;
    }
  }
}

// Columns [column, column + V) of the row that an id without a row reads.
// Seldom called: kept out of line, so that it costs the common path no registers.
template <typename T, int V>
__device__ __noinline__ Vec<V> default_columns(const TableView& table, Key key,
                                               std::int64_t column) {
  Vec<V> v{};
  if (table.default_row == DefaultRow::kZeros) return v;
  for (int i = 0; i < V; ++i) {
    const std::int64_t c = column + i;
    v.x[i] =
        table.default_row == DefaultRow::kVector
            ? table.default_vector[c]
            : to_float(from_float<T>(table.initializer.value(key, static_cast<std::uint32_t>(c))));
  }
  return v;
}

}  // namespace sok::cuda

#endif  // SOK_CUDA_RESOLVE_CUH_
