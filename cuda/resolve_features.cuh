// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CUDA_RESOLVE_FEATURES_CUH_
#define SOK_CUDA_RESOLVE_FEATURES_CUH_

#include "cc_ops/core/status.h"
#include "cc_ops/core/table_ref.h"
#include "cuda/context.h"
#include "cuda/features.cuh"
#include "cuda/launch.cuh"
#include "cuda/resolve.cuh"

namespace sok::cuda {

// An index that lives as long as one op and numbers the different keys that it meets.
struct ScratchIndex {
  Buffer control, slots, count;
  IndexRef index;

  static Status create(Context& context, std::int64_t keys, ScratchIndex* scratch);
};

// The same where lanes of one warp may belong to different tables: each table in turn.
__device__ inline void initialize_inserted_of_any_table(const TableView* table, bool inserted,
                                                        Key key, Row row) {
  __syncwarp();
  unsigned waiting = __ballot_sync(kFullMask, inserted);
  while (waiting != 0) {
    const int from = __ffs(static_cast<int>(waiting)) - 1;
    const auto* current = reinterpret_cast<const TableView*>(
        __shfl_sync(kFullMask, reinterpret_cast<unsigned long long>(table), from));
    const bool mine = inserted && table == current;
    initialize_inserted(*current, mine, key, row);
    __syncwarp();
    waiting &= ~__ballot_sync(kFullMask, mine);
  }
}

// Gives every id of every feature its row, inserting new ones, and fills new rows: one thread an
// id.
template <typename Where>
__global__ void __launch_bounds__(tuning::kBlock)
    insert_features_kernel(const __grid_constant__ FeatureLaunch<Where> args) {
  const std::int64_t padded = (args.ids + 31) / 32 * 32;
  for (std::int64_t i = thread_index(); i < padded; i += thread_count()) {
    const FeatureArgs& feature = args.find(&FeatureArgs::first_id, i < args.ids ? i : args.ids - 1);
    const std::int64_t at = i - feature.first_id;
    const bool has_id = i < args.ids;
    const Key id = has_id ? feature.bags.ids[at] : 0;
    const FoundOrInserted found = insert_row(*feature.table, has_id, id, at);
    if (has_id) feature.rows[at] = found.row;
    initialize_inserted_of_any_table(feature.table, found.inserted, id, found.row);
  }
}

}  // namespace sok::cuda

#endif  // SOK_CUDA_RESOLVE_FEATURES_CUH_
