// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CUDA_UPDATE_ROWS_CUH_
#define SOK_CUDA_UPDATE_ROWS_CUH_

#include "cc_ops/core/update.h"
#include "cuda/table_view.h"
#include "cuda/vec.cuh"

namespace sok::cuda {

constexpr int kMostStatesOfOne = 3;

// One table's part of an update.
struct UpdateArgs {
  const TableView* table = nullptr;
  const Key* keys = nullptr;
  const float* gradients = nullptr;
  const float* hyper = nullptr;
  std::uint32_t* places = nullptr;  // by row: 1 + the place of its gradient (global reach)
  std::int64_t count = 0;
  std::int64_t first_key = 0;       // counting all keys of the launch
  std::int32_t lanes = 32;
  std::int32_t states[kMostStatesOfOne] = {};
};

// Updates one row, a tile's lanes side by side. `gradient` may be null: all zeros.
template <typename O, typename T, int V>
__device__ __forceinline__ void update_row(const O& optimizer, const Common& common,
                                           const UpdateArgs& args, const Tile& tile, Row row,
                                           const float* gradient, float scale) {
  const TableView& table = *args.table;
  T* weights = table.values<T>().row(row);
  float* planes[kMostStatesOfOne] = {};
#pragma unroll
  for (int s = 0; s < O::kStateCount; ++s) {
    planes[s] = table.states[args.states[s]].plane(table.shape).row(row);
  }
  const auto read = [&](std::int64_t c) {
    Vec<V> g{};
    if (gradient != nullptr) g = load<float, V>(gradient + c);
    for (int i = 0; i < V; ++i) g.x[i] *= scale;
    return g;
  };
  float prepared = 0;
  if constexpr (O::kRowWise) {
    float square = 0;
    for (std::int64_t c = tile.lane * V; c < table.width; c += tile.lanes * V) {
      const Vec<V> g = read(c);
      for (int i = 0; i < V; ++i) square += g.x[i] * g.x[i];
    }
    square = tile.sum(square) / static_cast<float>(table.width);
    float state = *planes[0];
    prepared = optimizer.prepare_row(square, &state);
    __syncwarp(tile.mask);  // every lane has read the state
    if (tile.lane == 0) *planes[0] = state;
  }
  for (std::int64_t c = tile.lane * V; c < table.width; c += tile.lanes * V) {
    const Vec<V> g = read(c);
    Vec<V> w = load<T, V>(weights + c);
    if constexpr (O::kRowWise) {
      for (int i = 0; i < V; ++i) {
        float s[1] = {prepared};
        w.x[i] = update_column(common, optimizer, w.x[i], g.x[i], s);
      }
    } else {
      Vec<V> states[O::kStateCount > 0 ? O::kStateCount : 1];
#pragma unroll
      for (int s = 0; s < O::kStateCount; ++s) states[s] = load<float, V>(planes[s] + c);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        float values[kMostStatesOfOne] = {};
        for (int s = 0; s < O::kStateCount; ++s) values[s] = states[s].x[i];
        w.x[i] = update_column(common, optimizer, w.x[i], g.x[i], values);
        for (int s = 0; s < O::kStateCount; ++s) states[s].x[i] = values[s];
      }
#pragma unroll
      for (int s = 0; s < O::kStateCount; ++s) store<float, V>(planes[s] + c, states[s]);
    }
    store<T, V>(weights + c, w);
  }
}

}  // namespace sok::cuda

#endif  // SOK_CUDA_UPDATE_ROWS_CUH_
