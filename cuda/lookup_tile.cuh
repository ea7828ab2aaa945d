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

// How much a kernel has to do: one id a bag needs no arithmetic at all.
enum class Work { kBulkCopy, kOneIdABag, kUnweighted, kGeneral };

// The bags of a tile, one a lane. What the end of a bag needs is found here, before the loads of
// rows, so that nothing between those waits for memory or divides.
struct TileBags {
  std::int64_t first = 0;           // bag
  int count = 0;                    // of bags, no more than lanes
  std::int64_t begin = 0, end = 0;  // of the ids of all of them
  std::int64_t my_end = 0;          // where this lane's bag ends
  float my_scale = 1.0f;            // what its sum is multiplied with, if ids have no weights

  // Whatever row splits say, no loop reads outside of the ids (Bags::inside).
  __device__ TileBags(const FeatureArgs& feature, const Tile& tile, std::int64_t first_bag)
      : first(first_bag) {
    const Bags& bags = feature.bags;
    const std::int64_t left = bags.bags - first;
    count = left < feature.bags_per_tile ? (left > 0 ? static_cast<int>(left) : 0)
                                         : feature.bags_per_tile;
    std::int64_t my_begin = 0;
    if (tile.lane < count) {
      const std::int64_t bag = first + tile.lane;
      my_begin = bags.begin(bag);
      my_end = bags.end(bag);
      if (bags.row_splits != nullptr) {
        check(feature, bag, my_begin, my_end);
        my_begin = bags.inside(my_begin);
        my_end = bags.inside(my_end);
      }
      if (bags.weights == nullptr) my_scale = bags.scale_of(my_end - my_begin);
    }
    __syncwarp();
    begin = tile.shfl_in_step(my_begin, 0);
    end = tile.shfl_in_step(my_end, count > 0 ? count - 1 : 0);
  }

 private:
  __device__ static void check(const FeatureArgs& feature, std::int64_t bag, std::int64_t from,
                               std::int64_t to) {
    const Bags& bags = feature.bags;
    if (to >= from && (bag > 0 || from == 0) && (bag + 1 < bags.bags || to == bags.known_count)) {
      return;
    }
    const bool at_begin = bag == 0 && from != 0;
    record_offending(*feature.table, {at_begin ? from : to, at_begin ? 0 : bag + 1, from,
                                      bags.known_count, feature.feature_number, 0});
  }
};

// As many ids as a tile has lanes, one a lane: where the rows are, and what they count.
template <typename T, int V, Work W>
struct Chunk {
  int count;            // of ids
  int most;             // of ids, of all tiles of the warp
  const T* row;         // of this lane's id
  bool missing;         // it has none
  float weight = 1.0f;  // of the id
  float factor = 1.0f;  // of the row: the weight, and what keeps the row within max_norm

  // What is read of this lane's id before its row is looked for: the id, or its row.
  __device__ static Key id_or_row(const FeatureArgs& feature, const Tile& tile, std::int64_t base,
                                  std::int64_t end) {
    const std::int64_t i = base + tile.lane;
    if (i >= end) return 0;
    return feature.rows != nullptr ? static_cast<Key>(feature.rows[i]) : feature.bags.ids[i];
  }

  __device__ Chunk(const FeatureArgs& feature, const Tile& tile, Key id_or_row, std::int64_t base,
                   std::int64_t end) {
    const Bags& bags = feature.bags;
    count = static_cast<int>(end - base < tile.lanes ? (end > base ? end - base : 0) : tile.lanes);
    most = __reduce_max_sync(kFullMask, count);
    Row number = kNoRow;
    const std::int64_t i = base + tile.lane;
    const bool has_id = tile.lane < count;
    if (has_id) {
      number = feature.rows != nullptr ? static_cast<Row>(id_or_row)
                                       : find_row(*feature.table, id_or_row, i);
      if (W == Work::kGeneral && bags.weights != nullptr) weight = bags.weights[i];
    }
    missing = has_id && number == kNoRow;
    row = number == kNoRow ? nullptr : row_pointer<T>(feature, number);
    if constexpr (W == Work::kGeneral) {
      factor = weight;
      if (feature.max_norm > 0) {
        for (int j = 0; j < count; ++j) {
          const float scale = norm_scale<T, V>(feature, tile, tile.shfl(number, j), base + j);
          if (tile.lane == j) factor *= scale;
        }
      }
    }
    __syncwarp();
  }
};

// The rows of N ids of a chunk, K vectors of each: those that exist are on their way together.
template <typename T, int V, int K, int N, bool kSomeMissing>
struct RowsInFlight {
  Raw<T, V> read[N][K];
  bool missing[N] = {};

  template <typename C>
  __device__ __forceinline__ RowsInFlight(const Tile& tile, const C& chunk, int first,
                                          std::int64_t column, const bool (&inside)[K]) {
#pragma unroll
    for (int u = 0; u < N; ++u) {
      const T* row = reinterpret_cast<const T*>(
          tile.shfl_in_step(reinterpret_cast<unsigned long long>(chunk.row), first + u));
      if (kSomeMissing) missing[u] = row == nullptr;
      const bool there = first + u < chunk.count && !missing[u];
#pragma unroll
      for (int k = 0; k < K; ++k) {
        read[u][k].load(row + column + k * tile.lanes * V, there && inside[k]);
      }
    }
  }
  __device__ __forceinline__ Vec<V> floats(const FeatureArgs& feature, int u, int k, std::int64_t i,
                                           std::int64_t column) const {
    if (kSomeMissing && missing[u]) {
      return default_columns<T, V>(*feature.table, feature.bags.ids[i], column);
    }
    return read[u][k].floats();
  }
};

// Every bag is one id: rows go straight to the output.
template <typename T, int V>
class RowCopies {
 public:
  __device__ RowCopies(const FeatureArgs& feature, const Tile& tile)
      : feature_(feature), tile_(tile) {}

  __device__ void run(std::int64_t first, std::int64_t last) {
    using C = Chunk<T, V, Work::kOneIdABag>;
    for (std::int64_t base = first; __any_sync(kFullMask, base < last); base += tile_.lanes) {
      const C chunk(feature_, tile_, C::id_or_row(feature_, tile_, base, last), base, last);
      const bool some_missing = __any_sync(kFullMask, chunk.missing);
      for (std::int64_t c = tile_.lane * V; c - tile_.lane * V < feature_.width;
           c += tile_.lanes * V) {
        if (some_missing) {
          copy<tuning::kRowsBesideMissing, true>(chunk, base, c);
        } else {
          copy<tuning::rows_in_flight(1), false>(chunk, base, c);
        }
      }
    }
  }

 private:
  template <int N, bool kSomeMissing, typename C>
  __device__ __forceinline__ void copy(const C& chunk, std::int64_t base, std::int64_t column) {
    const bool inside[1] = {column < feature_.width};
    for (int j = 0; j < chunk.most; j += N) {
      const RowsInFlight<T, V, 1, N, kSomeMissing> rows(tile_, chunk, j, column, inside);
#pragma unroll
      for (int u = 0; u < N; ++u) {
        if (j + u >= chunk.count || !inside[0]) continue;
        store_as<V>(feature_.columns.type, feature_.columns.data,
                    (base + j + u) * feature_.width + column,
                    rows.floats(feature_, u, 0, base + j + u, column));
      }
    }
  }

  const FeatureArgs& feature_;
  const Tile& tile_;
};

// K vectors of V columns a lane, from `column0` on. The tiles of a warp go in step: what one of
// them has to do, the others wait for anyway.
template <typename T, int V, int K, Work W>
class BagSums {
 public:
  __device__ BagSums(const FeatureArgs& feature, const Tile& tile, const TileBags& bags,
                     std::int64_t column0)
      : feature_(feature), tile_(tile), bags_(bags), column_(column0 + tile.lane * V) {
    out_ = bags.first * feature.width + column_;
    for (int k = 0; k < K; ++k) inside_[k] = column_ + k * tile.lanes * V < feature.width;
  }

  __device__ void run() {
    using C = Chunk<T, V, W>;
    Key next = C::id_or_row(feature_, tile_, bags_.begin, bags_.end);
    for (std::int64_t base = bags_.begin; __any_sync(kFullMask, base < bags_.end);
         base += tile_.lanes) {
      const C chunk(feature_, tile_, next, base, bags_.end);
      // On its way while the rows of these are read.
      next = C::id_or_row(feature_, tile_, base + tile_.lanes, bags_.end);
      // Where this lane's bag ends in the chunk.
      const std::int64_t to = bags_.my_end - base;
      const int my_end = static_cast<int>(to < 0 ? 0 : to < tile_.lanes ? to : tile_.lanes);
      if (__any_sync(kFullMask, chunk.missing)) {
        add<tuning::kRowsBesideMissing, true>(chunk, base, my_end);
      } else {
        add<tuning::rows_in_flight(K), false>(chunk, base, my_end);
      }
    }
    while (__any_sync(kFullMask, bag_ < bags_.count)) finish_bag(bag_ < bags_.count);
  }

 private:
  template <int N, bool kSomeMissing, typename C>
  __device__ __forceinline__ void add(const C& chunk, std::int64_t base, int my_end) {
    int bag_end = tile_.shfl_in_step(my_end, bag_);
    for (int j = 0; j < chunk.most; j += N) {
      const RowsInFlight<T, V, K, N, kSomeMissing> rows(tile_, chunk, j, column_, inside_);
#pragma unroll
      for (int u = 0; u < N; ++u) {
        if (j + u >= chunk.most) break;
        const bool has_id = j + u < chunk.count;
        while (__any_sync(kFullMask, has_id && j + u >= bag_end)) {
          finish_bag(has_id && j + u >= bag_end);
          bag_end = tile_.shfl_in_step(my_end, bag_);
        }
        float factor = 1.0f;
        if constexpr (W == Work::kGeneral) {
          factor = tile_.shfl_in_step(chunk.factor, j + u);
          if (feature_.bags.weights != nullptr) {
            const float weight = tile_.shfl_in_step(chunk.weight, j + u);
            if (has_id) divisor_.add(feature_.bags.combiner, weight);
          }
        }
#pragma unroll
        for (int k = 0; k < K; ++k) {
          if (!has_id || !inside_[k]) continue;
          const Vec<V> row =
              rows.floats(feature_, u, k, base + j + u, column_ + k * tile_.lanes * V);
#pragma unroll
          for (int i = 0; i < V; ++i) total_[k].x[i] += factor * row.x[i];
        }
      }
    }
  }

  // The bag of each tile that has come to its end.
  __device__ __forceinline__ void finish_bag(bool ended) {
    float scale = tile_.shfl_in_step(bags_.my_scale, bag_);
    if (!ended) return;
    if constexpr (W == Work::kGeneral) {
      if (feature_.bags.weights != nullptr) scale = divisor_.scale(feature_.bags.combiner);
      divisor_ = {};
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (inside_[k]) {
#pragma unroll
        for (int i = 0; i < V; ++i) {
          total_[k].x[i] = scale == 0.0f ? 0.0f : scale * total_[k].x[i];
        }
        store_as<V>(feature_.columns.type, feature_.columns.data, out_ + k * tile_.lanes * V,
                    total_[k]);
      }
      total_[k] = {};
    }
    out_ += feature_.width;
    ++bag_;
  }

  const FeatureArgs& feature_;
  const Tile& tile_;
  const TileBags& bags_;
  std::int64_t column_, out_;  // of the first vector, in a row and in the output
  bool inside_[K];             // of the row, each vector
  Vec<V> total_[K] = {};
  Divisor divisor_;
  int bag_ = 0;  // that is being added up, of the tile's
};

template <typename T, int V, int K, Work W, typename Where>
__global__ void __launch_bounds__(tuning::kLookupBlock, tuning::lookup_blocks(K))
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
    if constexpr (W == Work::kOneIdABag) {
      const std::int64_t past = first_bag + feature.bags_per_tile;
      RowCopies<T, V>(feature, tile)
          .run(first_bag, past < feature.bags.bags ? past : feature.bags.bags);
    } else {
      const TileBags bags(feature, tile, first_bag);
      for (std::int64_t column = 0; column < feature.width; column += tile.lanes * V * K) {
        BagSums<T, V, K, W>(feature, tile, bags, column).run();
      }
    }
  }
}

}  // namespace sok::cuda

#endif  // SOK_CUDA_LOOKUP_TILE_CUH_
