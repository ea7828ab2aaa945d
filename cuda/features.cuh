// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The features of one launch, as kernel parameters.
#ifndef SOK_CUDA_FEATURES_CUH_
#define SOK_CUDA_FEATURES_CUH_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc_ops/core/batch.h"
#include "cc_ops/core/status.h"
#include "cuda/table_view.h"
#include "cuda/tuning.h"

namespace sok::cuda {

struct FeatureArgs {
  const TableView* table = nullptr;
  const void* slab0 = nullptr;  // of the values: what most rows need is here already
  std::uint32_t first_rows = 0;
  std::int32_t lanes = 32;  // of a tile
  std::int64_t width = 0;
  Bags bags;
  Columns columns;  // the output, or its gradient
  float max_norm = 0;
  std::int32_t bags_per_tile = 1;
  Row* rows = nullptr;              // of the ids, once they are resolved
  std::uint32_t* tags = nullptr;    // of the table's rows (merge)
  std::int32_t table_number = 0;    // in the call
  std::int32_t feature_number = 0;  // in the call
  std::uint64_t round = 0;          // of insertions into the table
  std::int64_t first_id = 0;        // of this feature, counting all ids of the launch
  std::int64_t first_unit = 0;      // of this feature, counting all warps' units of the launch
};

template <typename T>
__device__ __forceinline__ const T* row_pointer(const FeatureArgs& feature, Row row) {
  if (row < feature.first_rows) {
    return static_cast<const T*>(feature.slab0) + static_cast<std::int64_t>(row) * feature.width;
  }
  return feature.table->values<T>().row(row);
}

struct LaunchArgs {
  std::int32_t count = 0;
  std::int64_t ids = 0;
  std::int64_t units = 0;
  FeatureArgs features[tuning::kFeaturesALaunch];

  // The feature that item number `item` belongs to; `first` is first_id or first_unit.
  __device__ __forceinline__ const FeatureArgs& find(std::int64_t FeatureArgs::* first,
                                                     std::int64_t item) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (features[middle].*first <= item) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return features[low];
  }
};

// Calls f(args) with the features in pieces that fit one launch.
template <typename F>
Status for_each_launch(const std::vector<FeatureArgs>& features, F&& f) {
  for (std::size_t begin = 0; begin < features.size(); begin += tuning::kFeaturesALaunch) {
    LaunchArgs args;
    args.count = static_cast<std::int32_t>(
        std::min<std::size_t>(tuning::kFeaturesALaunch, features.size() - begin));
    for (int i = 0; i < args.count; ++i) {
      FeatureArgs& feature = args.features[i] = features[begin + i];
      feature.first_id = args.ids;
      feature.first_unit = args.units;
      args.ids += feature.bags.ids_count();
      const std::int64_t per_warp =
          static_cast<std::int64_t>(32 / feature.lanes) * feature.bags_per_tile;
      args.units += (feature.bags.bags + per_warp - 1) / per_warp;
    }
    SOK_RETURN_IF_ERROR(f(args));
  }
  return {};
}

}  // namespace sok::cuda

#endif  // SOK_CUDA_FEATURES_CUH_
