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
  std::int64_t first_key = 0;  // counting all keys of the launch
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

// Updates R rows (kNoRow: none), a tile's lanes side by side; the loads of all of them come before
// what is done with them. `read(r, c)` gives the columns [c, c + V) of the gradient of rows[r]; it
// may be called twice for a column, and is called by all lanes of the tile together, with columns
// past the width too.
template <typename O, typename T, int V, int R, typename Read>
__device__ __forceinline__ void update_rows(const O& optimizer, const Common& common,
                                            const UpdateArgs& args, const Tile& tile,
                                            const Row (&rows)[R], Read&& read) {
  T* weights[R];
#pragma unroll
  for (int r = 0; r < R; ++r) weights[r] = rows[r] == kNoRow ? nullptr : args.weights<T>(rows[r]);
  const std::int64_t step = tile.lanes * V;
  if constexpr (O::kRowWise) {
    // Where a lane has one vector of the row, everything is read once, and before it is needed.
    const bool once = args.width <= step;
    const std::int64_t mine = tile.lane * V;
    float* places[R];
    float states[R] = {};
    Vec<V> w[R] = {}, g[R] = {};
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (weights[r] == nullptr) continue;
      places[r] = args.state(0, rows[r]);
      states[r] = *places[r];
      if (once && mine < args.width) w[r] = load<T, V>(weights[r] + mine);
    }
    float squares[R] = {};
    for (std::int64_t first = 0; first < args.width; first += step) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (weights[r] != nullptr) g[r] = read(r, first + mine);
      }
#pragma unroll
      for (int r = 0; r < R; ++r) {
        for (int i = 0; i < V; ++i) squares[r] += g[r].x[i] * g[r].x[i];
      }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) squares[r] = tile.sum(squares[r]);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (weights[r] == nullptr) continue;
      const float prepared =
          optimizer.prepare_row(squares[r] / static_cast<float>(args.width), &states[r]);
      if (tile.lane == 0) *places[r] = states[r];
      for (std::int64_t first = 0; first < args.width; first += step) {
        const std::int64_t c = first + mine;
        if (!once) g[r] = read(r, c);
        if (c >= args.width) continue;
        if (!once) w[r] = load<T, V>(weights[r] + c);
        for (int i = 0; i < V; ++i) {
          float s[1] = {prepared};
          w[r].x[i] = update_column(common, optimizer, w[r].x[i], g[r].x[i], s);
        }
        store<T, V>(weights[r] + c, w[r]);
      }
    }
  } else {
    constexpr int S = O::kStateCount;
    float* planes[R][S > 0 ? S : 1];
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int s = 0; s < S; ++s) {
        planes[r][s] = rows[r] == kNoRow ? nullptr : args.state(s, rows[r]);
      }
    }
    for (std::int64_t first = 0; first < args.width; first += step) {
      const std::int64_t c = first + tile.lane * V;
      const bool inside = c < args.width;
      Vec<V> w[R] = {}, g[R] = {};
      Vec<V> states[R][S > 0 ? S : 1] = {};
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (!inside || weights[r] == nullptr) continue;
        w[r] = load<T, V>(weights[r] + c);
#pragma unroll
        for (int s = 0; s < S; ++s) states[r][s] = load<float, V>(planes[r][s] + c);
      }
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (weights[r] != nullptr) g[r] = read(r, c);
      }
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (!inside || weights[r] == nullptr) continue;
#pragma unroll
        for (int i = 0; i < V; ++i) {
          float values[kMostStatesOfOne] = {};
#pragma unroll
          for (int s = 0; s < S; ++s) values[s] = states[r][s].x[i];
          w[r].x[i] = update_column(common, optimizer, w[r].x[i], g[r].x[i], values);
#pragma unroll
          for (int s = 0; s < S; ++s) states[r][s].x[i] = values[s];
        }
#pragma unroll
        for (int s = 0; s < S; ++s) store<float, V>(planes[r][s] + c, states[r][s]);
        store<T, V>(weights[r] + c, w[r]);
      }
    }
  }
}

// Reads a gradient that lies in memory; null is all zeros.
template <int V>
struct StoredGradient {
  const float* gradient;
  float scale;
  std::int64_t width;

  __device__ Vec<V> operator()(int, std::int64_t c) const {
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

// Neither an infinite gradient nor a refused id may change anything.
__device__ __forceinline__ bool applies(const StepScalars& scalars, const TableView& table) {
  return *scalars.apply && *table.suppressed == 0;
}

}  // namespace sok::cuda

#endif  // SOK_CUDA_UPDATE_ROWS_CUH_
