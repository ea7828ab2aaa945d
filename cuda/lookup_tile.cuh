// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Forward: a tile of lanes, as many as a row has vectors, walks a few bags. Its lanes first find
// the rows of as many ids, one each, then read those rows together, several at a time, and add them
// up in registers; a bag that ends is scaled and written. The rows of a bag are never stored in
// between.
#ifndef SOK_CUDA_LOOKUP_TILE_CUH_
#define SOK_CUDA_LOOKUP_TILE_CUH_

#include <cstdint>

#include "cc_ops/core/combine.h"
#include "cuda/features.cuh"
#include "cuda/launch.cuh"
#include "cuda/lookup_rows.cuh"
#include "cuda/resolve.cuh"
#include "cuda/tuning.h"
#include "cuda/vec.cuh"

namespace sok::cuda {

// Looks at the row splits of these bags, each lane of the tile at some. Whatever they say, no loop
// reads outside of the ids (Bags::inside).
__device__ inline void check_splits(const FeatureArgs& feature, const Tile& tile,
                                    std::int64_t first_bag, std::int64_t last_bag) {
  const Bags& bags = feature.bags;
  for (std::int64_t bag = first_bag + tile.lane; bag < last_bag; bag += tile.lanes) {
    const std::int64_t begin = bags.row_splits[bag], end = bags.row_splits[bag + 1];
    if (end >= begin && (bag > 0 || begin == 0) &&
        (bag + 1 < bags.bags || end == bags.known_count)) {
      continue;
    }
    const bool at_begin = bag == 0 && begin != 0;
    record_offending(*feature.table, {at_begin ? begin : end, at_begin ? 0 : bag + 1, begin,
                                      bags.known_count, feature.feature_number, 0});
  }
}

// How much a kernel has to do: one id a bag needs no arithmetic at all.
enum class Work { kBulkCopy, kOneIdABag, kUnweighted, kGeneral };

// Every bag is one id: rows go straight to the output.
template <typename T, int V>
__device__ void copy_rows(const FeatureArgs& feature, const Tile& tile, std::int64_t first,
                          std::int64_t last) {
  constexpr int kAhead = 8;
  for (std::int64_t base = first; base < last; base += tile.lanes) {
    const int count = static_cast<int>(last - base < tile.lanes ? last - base : tile.lanes);
    Row row = kNoRow;
    if (tile.lane < count) {
      const std::int64_t i = base + tile.lane;
      row = feature.rows != nullptr ? feature.rows[i]
                                    : find_row(*feature.table, feature.bags.ids[i], i);
    }
    for (std::int64_t column = tile.lane * V; column - tile.lane * V < feature.width;
         column += tile.lanes * V) {
      for (int j = 0; j < count; j += kAhead) {
        Vec<V> read[kAhead];
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {
          const int from = j + u < count ? j + u : count - 1;
          read[u] = read_columns<T, V>(feature, tile.shfl(row, from), base + from, column);
        }
        if (column >= feature.width) continue;
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {
          if (j + u >= count) break;
          store_as<V>(feature.columns.type, feature.columns.data,
                      (base + j + u) * feature.width + column, read[u]);
        }
      }
    }
  }
}

// K vectors of V columns a lane, from `column0` on.
template <typename T, int V, int K, Work W>
__device__ void combine_bags(const FeatureArgs& feature, const Tile& tile, std::int64_t first_bag,
                             std::int64_t last_bag, std::int64_t column0) {
  constexpr int kAhead = tuning::rows_in_flight(K);
  const Bags& bags = feature.bags;
  const std::int64_t lane_column = column0 + tile.lane * V;
  const std::int64_t step = tile.lanes * V;

  Vec<V> total[K] = {};
  Divisor divisor;
  std::int64_t bag = first_bag;
  std::int64_t bag_begin = bags.inside(bags.begin(bag));
  std::int64_t bag_end = bags.inside(bags.end(bag));
  const auto finish_bag = [&] {
    if (bags.weights == nullptr) divisor.total = static_cast<float>(bag_end - bag_begin);
    const float scale = divisor.scale(bags.combiner);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const std::int64_t column = lane_column + k * step;
      if (column < feature.width) {
        for (int i = 0; i < V; ++i) total[k].x[i] = scale == 0.0f ? 0.0f : scale * total[k].x[i];
        store_as<V>(feature.columns.type, feature.columns.data, bag * feature.width + column,
                    total[k]);
      }
      total[k] = {};
    }
    divisor = {};
    bag_begin = bag_end;
    if (++bag < last_bag) bag_end = bags.inside(bags.end(bag));
  };

  const std::int64_t last_id = bags.inside(bags.end(last_bag - 1));
  for (std::int64_t base = bag_begin; base < last_id; base += tile.lanes) {
    const int count = static_cast<int>(last_id - base < tile.lanes ? last_id - base : tile.lanes);
    Row row = kNoRow;
    float weight = 1.0f;
    if (tile.lane < count) {
      const std::int64_t i = base + tile.lane;
      row = feature.rows != nullptr ? feature.rows[i] : find_row(*feature.table, bags.ids[i], i);
      if (W == Work::kGeneral && bags.weights != nullptr) weight = bags.weights[i];
    }
    for (int j = 0; j < count; j += kAhead) {
      Vec<V> read[kAhead][K];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        // Past the end the last row is read again: no branch stands between the loads.
        const int from = j + u < count ? j + u : count - 1;
        const Row r = tile.shfl(row, from);
#pragma unroll
        for (int k = 0; k < K; ++k) {
          read[u][k] = read_columns<T, V>(feature, r, base + from, lane_column + k * step);
        }
      }
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        if (j + u >= count) break;
        while (base + j + u >= bag_end) finish_bag();
        float w = 1.0f;
        if constexpr (W == Work::kGeneral) {
          w = tile.shfl(weight, j + u);
          if (bags.weights != nullptr) divisor.add(bags.combiner, w);
          if (feature.max_norm > 0) {
            w *= norm_scale<T, V>(feature, tile, tile.shfl(row, j + u), base + j + u);
          }
        }
#pragma unroll
        for (int k = 0; k < K; ++k) {
#pragma unroll
          for (int i = 0; i < V; ++i) total[k].x[i] += w * read[u][k].x[i];
        }
      }
    }
  }
  while (bag < last_bag) finish_bag();
}

template <typename T, int V, int K, Work W, typename Where>
__global__ void __launch_bounds__(tuning::kBlock, K == 1 ? 4 : 2)
    lookup_kernel(const __grid_constant__ FeatureLaunch<Where> args) {
  const std::int64_t warps = thread_count() / 32;
  for (std::int64_t unit = thread_index() / 32; unit < args.units; unit += warps) {
    const FeatureArgs& feature = args.find(&FeatureArgs::first_unit, unit);
    const Tile tile(feature.lanes);
    if (feature.rows != nullptr && unit == feature.first_unit && (threadIdx.x & 31) == 0) {
      feature.table->source.report(feature.round);
    }
    const std::int64_t first_bag =
        ((unit - feature.first_unit) * tile.tiles + tile.number) * feature.bags_per_tile;
    if (first_bag >= feature.bags.bags) continue;
    const std::int64_t past = first_bag + feature.bags_per_tile;
    const std::int64_t last_bag = past < feature.bags.bags ? past : feature.bags.bags;
    if constexpr (W == Work::kOneIdABag) {
      copy_rows<T, V>(feature, tile, first_bag, last_bag);
    } else {
      if (feature.bags.row_splits != nullptr) check_splits(feature, tile, first_bag, last_bag);
      for (std::int64_t column = 0; column < feature.width; column += tile.lanes * V * K) {
        combine_bags<T, V, K, W>(feature, tile, first_bag, last_bag, column);
      }
    }
  }
}

}  // namespace sok::cuda

#endif  // SOK_CUDA_LOOKUP_TILE_CUH_
