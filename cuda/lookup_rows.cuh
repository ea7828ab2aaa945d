// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// How kernels over features read the rows of ids.
#ifndef SOK_CUDA_LOOKUP_ROWS_CUH_
#define SOK_CUDA_LOOKUP_ROWS_CUH_

#include <cstdint>

#include "cuda/features.cuh"
#include "cuda/resolve.cuh"
#include "cuda/stages.h"
#include "cuda/vec.cuh"

namespace sok::cuda {

// Columns of the row of id number `i`.
template <typename T, int V>
__device__ __forceinline__ Vec<V> read_columns(const FeatureArgs& feature, Row row, std::int64_t i,
                                               std::int64_t column) {
  if (column >= feature.width) return {};
  if (row == kNoRow) return default_columns<T, V>(*feature.table, feature.bags.ids[i], column);
  return load<T, V>(row_pointer<T>(feature, row) + column);
}

// What a row is multiplied with so that it is no longer than max_norm.
template <typename T, int V>
__device__ __noinline__ float norm_scale(const FeatureArgs& feature, const Tile& tile, Row row,
                                         std::int64_t i) {
  float square = 0;
  for (std::int64_t c = tile.lane * V; c < feature.width; c += tile.lanes * V) {
    const Vec<V> v = read_columns<T, V>(feature, row, i, c);
    for (int k = 0; k < V; ++k) square += v.x[k] * v.x[k];
  }
  const float norm = sqrtf(tile.sum(square));
  return norm > feature.max_norm ? feature.max_norm / norm : 1.0f;
}

// What the host knows of a feature; `lanes` of a tile for its rows.
inline Status describe(Context& context, const LookupFeature& feature, int lanes,
                       FeatureArgs* args) {
  const Table& table = *feature.table;
  SOK_RETURN_IF_ERROR(feature.table->device_view(context, &args->table));
  const TableView view = table.view();
  args->slab0 = view.slab0;
  args->first_rows = view.shape.first;
  args->width = view.width;
  args->bags = feature.bags;
  args->columns = feature.output;
  args->max_norm = feature.max_norm;
  args->lanes = lanes;
  return {};
}

}  // namespace sok::cuda

#endif  // SOK_CUDA_LOOKUP_ROWS_CUH_
