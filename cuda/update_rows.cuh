// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CUDA_UPDATE_ROWS_CUH_
#define SOK_CUDA_UPDATE_ROWS_CUH_

#include "cc_ops/core/update.h"
#include "cuda/stages.h"
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
  // Copies of what the view says, so that no load stands before that of a row: slab 0 and its size.
  std::int64_t width = 0;
  std::uint32_t first_rows = 0;
  void* slab0 = nullptr;
  float* state_slab0[kMostStatesOfOne] = {};
  std::int64_t state_width[kMostStatesOfOne] = {};

  // Takes over what the host knows of the table and the optimizer's planes in it.
  void describe(const TableView& view) {
    width = view.width;
    first_rows = view.shape.first;
    slab0 = view.slab0;
    for (int s = 0; s < kMostStatesOfOne; ++s) {
      state_slab0[s] = view.states[states[s]].slab0;
      state_width[s] = view.states[states[s]].width;
    }
  }
  template <typename T>
  __device__ __forceinline__ T* weights(Row row) const {
    if (row < first_rows) return static_cast<T*>(slab0) + static_cast<std::int64_t>(row) * width;
    return table->values<T>().row(row);
  }
  __device__ __forceinline__ float* state(int s, Row row) const {
    if (row < first_rows) return state_slab0[s] + static_cast<std::int64_t>(row) * state_width[s];
    return table->states[states[s]].plane(table->shape).row(row);
  }
};

// Updates one row, a tile's lanes side by side. `read(c)` gives the columns [c, c + V) of its gradient;
// it may be called twice for a column, and is called by all lanes of the tile together, with columns
// past the width too.
template <typename O, typename T, int V, typename Read>
__device__ __forceinline__ void update_row(const O& optimizer, const Common& common,
                                           const UpdateArgs& args, const Tile& tile, Row row,
                                           Read&& read) {
  T* weights = args.weights<T>(row);
  float* planes[kMostStatesOfOne] = {};
#pragma unroll
  for (int s = 0; s < O::kStateCount; ++s) {
    planes[s] = args.state(s, row);
  }
  const std::int64_t step = tile.lanes * V;
  if constexpr (O::kRowWise) {
    float state = *planes[0];
    const auto square_of = [](const Vec<V>& g) {
      float square = 0;
      for (int i = 0; i < V; ++i) square += g.x[i] * g.x[i];
      return square;
    };
    // Where a lane has one vector of the row, everything is read once, and before it is needed.
    const bool once = args.width <= step;
    const bool mine = once && tile.lane * V < args.width;
    Vec<V> w{}, g{};
    if (mine) w = load<T, V>(weights + tile.lane * V);
    float square = 0;
    for (std::int64_t first = 0; first < args.width; first += step) {
      g = read(first + tile.lane * V);
      square += square_of(g);
    }
    const float prepared =
        optimizer.prepare_row(tile.sum(square) / static_cast<float>(args.width), &state);
    __syncwarp(tile.mask);  // every lane has read the state
    if (tile.lane == 0) *planes[0] = state;
    for (std::int64_t first = 0; first < args.width; first += step) {
      const std::int64_t c = first + tile.lane * V;
      if (!once) g = read(c);
      if (c >= args.width) continue;
      if (!once) w = load<T, V>(weights + c);
      for (int i = 0; i < V; ++i) {
        float s[1] = {prepared};
        w.x[i] = update_column(common, optimizer, w.x[i], g.x[i], s);
      }
      store<T, V>(weights + c, w);
    }
  } else {
    for (std::int64_t first = 0; first < args.width; first += step) {
      const std::int64_t c = first + tile.lane * V;
      // The loads of weights and states come first: reading the gradient may take longer.
      Vec<V> w{};
      Vec<V> states[O::kStateCount > 0 ? O::kStateCount : 1] = {};
      if (c < args.width) {
        w = load<T, V>(weights + c);
#pragma unroll
        for (int s = 0; s < O::kStateCount; ++s) states[s] = load<float, V>(planes[s] + c);
      }
      const Vec<V> g = read(c);
      if (c >= args.width) continue;
#pragma unroll
      for (int i = 0; i < V; ++i) {
        float values[kMostStatesOfOne] = {};
#pragma unroll
        for (int s = 0; s < O::kStateCount; ++s) values[s] = states[s].x[i];
        w.x[i] = update_column(common, optimizer, w.x[i], g.x[i], values);
#pragma unroll
        for (int s = 0; s < O::kStateCount; ++s) states[s].x[i] = values[s];
      }
#pragma unroll
      for (int s = 0; s < O::kStateCount; ++s) store<float, V>(planes[s] + c, states[s]);
      store<T, V>(weights + c, w);
    }
  }
}

// Reads a gradient that lies in memory; null is all zeros.
template <int V>
struct StoredGradient {
  const float* gradient;
  float scale;
  std::int64_t width;

  __device__ Vec<V> operator()(std::int64_t c) const {
    Vec<V> g{};
    if (gradient != nullptr && c < width) g = load<float, V>(gradient + c);
    for (int i = 0; i < V; ++i) g.x[i] *= scale;
    return g;
  }
};

// Calls f(row type, columns a vector); 16-bit rows go column by column.
template <typename F>
Status with_vector(RowType type, std::int64_t width, F&& f) {
  if (type == RowType::kFloat16) return f(Half{}, std::integral_constant<int, 1>{});
  if (type == RowType::kBFloat16) return f(BFloat16{}, std::integral_constant<int, 1>{});
  if (width % 4 == 0) return f(float{}, std::integral_constant<int, 4>{});
  return f(float{}, std::integral_constant<int, 1>{});
}

inline int lanes_for(std::int64_t width, int v) {
  int lanes = 1;
  while (lanes < 32 && lanes * v < width) lanes *= 2;
  return lanes;
}

// Neither an infinite gradient nor a refused id may change anything.
__device__ __forceinline__ bool applies(const StepScalars& scalars, const TableView& table) {
  return *scalars.apply && *table.suppressed == 0;
}

}  // namespace sok::cuda

#endif  // SOK_CUDA_UPDATE_ROWS_CUH_
