// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The features that one launch works on.
#ifndef SOK_CUDA_FEATURES_CUH_
#define SOK_CUDA_FEATURES_CUH_

#include <cstdint>
#include <vector>

#include "cc_ops/core/batch.h"
#include "cc_ops/core/status.h"
#include "cuda/descriptors.cuh"
#include "cuda/table_view.h"

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

// What a kernel over features gets.
template <typename Where>
struct FeatureLaunch {
  std::int32_t count = 0;
  std::int64_t ids = 0;
  std::int64_t units = 0;
  typename Where::template List<FeatureArgs> features;

  // The feature that item number `item` belongs to; `first` is first_id or first_unit.
  __device__ __forceinline__ const FeatureArgs& find(std::int64_t FeatureArgs::* first,
                                                     std::int64_t item) const {
    return features.items[find_item(features, count, first, item)];
  }
};

// The features of some launches, all of which see all of them.
class Features {
 public:
  void add(const FeatureArgs& feature) { descriptors_.items.push_back(feature); }
  bool empty() const { return descriptors_.items.empty(); }
  bool in_parameters() const { return descriptors_.fit_parameters(); }
  std::vector<FeatureArgs>& items() { return descriptors_.items; }

  // Numbers the features' ids and units. Nothing may be added any more.
  Status prepare(Context& context) {
    for (FeatureArgs& feature : descriptors_.items) {
      feature.first_id = ids_;
      feature.first_unit = units_;
      ids_ += feature.bags.ids_count();
      const std::int64_t per_warp =
          static_cast<std::int64_t>(32 / feature.lanes) * feature.bags_per_tile;
      units_ += (feature.bags.bags + per_warp - 1) / per_warp;
    }
    return in_parameters() ? Status() : descriptors_.upload(context);
  }

  // Calls f(where, args), args a FeatureLaunch<decltype(where)>, unless there are no features.
  template <typename F>
  Status launch(F&& f) const {
    if (empty()) return {};
    return with_place(in_parameters(), [&](auto where) {
      FeatureLaunch<decltype(where)> args;
      args.count = static_cast<std::int32_t>(descriptors_.items.size());
      args.ids = ids_;
      args.units = units_;
      args.features = descriptors_.list<decltype(where)>();
      return f(where, args);
    });
  }

 private:
  Descriptors<FeatureArgs> descriptors_;
  std::int64_t ids_ = 0, units_ = 0;
};

}  // namespace sok::cuda

#endif  // SOK_CUDA_FEATURES_CUH_
