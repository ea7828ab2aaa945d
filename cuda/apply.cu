// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The last kernels of the merge that updates at once (merge_update.cu): singles, segments.
#include <algorithm>

#include "cuda/launch.cuh"
#include "cuda/merge.cuh"
#include "cuda/merge_update.cuh"
#include "cuda/stages.h"

namespace sok::cuda {
namespace {

// A row with one contribution.
struct alignas(16) Single {
  const void* source;
  Row row;
  float factor;
};

// Items of a warp, those of one table at a time and close together.
template <typename Item>
struct Compaction {
  Item items[tuning::kBlock / kWarp][kWarp];

  // Calls f(table, items, count) for each table of the warp's items; a lane without one has table
  // -1. The whole warp must call it.
  template <typename F>
  __device__ __forceinline__ void for_each_table(int table, const Item& item, F&& f) {
    Item* of_warp = items[threadIdx.x / kWarp];
    const unsigned lower = (1u << (threadIdx.x % kWarp)) - 1;
    unsigned waiting = __ballot_sync(kFullMask, table >= 0);
    while (waiting != 0) {
      const int current = __shfl_sync(kFullMask, table, __ffs(static_cast<int>(waiting)) - 1);
      const unsigned same = __ballot_sync(kFullMask, table == current);
      if (table == current) of_warp[__popc(same & lower)] = item;
      __syncwarp();
      f(current, of_warp, __popc(same));
      __syncwarp();
      waiting &= ~same;
    }
  }
};

// Rows that a tile updates together: their loads are on their way at the same time. More of them,
// or of states, need registers that warps then lack.
template <typename O>
constexpr int rows_together() {
  return O::kStateCount == 0 ? 2 : 1;
}
// Blocks of singles_kernel on a multiprocessor.
template <typename O>
constexpr int singles_blocks() {
  return O::kRowWise ? 6 : 4;
}

// Ids of a warp of singles_kernel.
int singles_a_warp(std::int64_t ids) {
  int each = kWarp;
  while (each > tuning::kFewestSinglesAWarp && ids / each < tuning::kBusyWarps) each /= 2;
  return each;
}

template <typename O, typename T, int V, typename Where>
__global__ void __launch_bounds__(tuning::kBlock, singles_blocks<O>())
    singles_kernel(const __grid_constant__ FeatureLaunch<Where> args,
                   const __grid_constant__ Tables<Where> tables, Scratch scratch, int each) {
  constexpr int R = rows_together<O>();
  __shared__ Compaction<Single> compaction;
  const float scale = *tables.scalars.scale;
  const std::int64_t step = *tables.scalars.iterations + 1;
  const Tile tile(tables[0].lanes);
  const int lane = threadIdx.x % kWarp;
  const std::int64_t warps = thread_count() / kWarp;
  for (std::int64_t first = thread_index() / kWarp * each; first < args.ids;
       first += warps * each) {
    Single single{};
    int number = -1;
    const std::int64_t p = first + lane;
    if (lane < each && p < args.ids) {
      // Both loads before anything waits for one of them.
      const Row row = scratch.rows[p];
      const std::uint32_t rank = scratch.ranks[p];
      const FeatureArgs& feature = args.find(&FeatureArgs::first_id, p);
      const std::int64_t i = p - feature.first_id;
      if (i == 0) feature.table->source.report(feature.round);
      if (row != kNoRow) {
        const std::int64_t bag = bag_of(feature.bags, i);
        const int bytes = feature.columns.type == RowType::kFloat32 ? 4 : 2;
        const void* source =
            static_cast<const char*>(feature.columns.data) + bag * feature.width * bytes;
        float coefficient = 1.0f;
        if (scratch.coefficients != nullptr) {
          coefficient = feature.bags.scale(bag);
          if (coefficient != 0.0f) coefficient *= feature.bags.weight(i);
        }
        if (rank == kSingle) {
          single = {source, row, coefficient == 0.0f ? 0.0f : coefficient * scale};
          number = feature.table_number;
        } else {
          const std::uint32_t place = feature.tags[row] + rank;
          scratch.sources[place] = source;
          if (scratch.coefficients != nullptr) scratch.coefficients[place] = coefficient;
        }
      }
    }
    compaction.for_each_table(number, single, [&](int table, const Single* singles, int count) {
      const UpdateArgs& update = tables[table];
      // An id was refused when the rows were collected: then no row changes.
      if (*update.table->suppressed != 0) return;
      const O optimizer(update.hyper, step);
      const Common common(update.hyper);
      for (int j = tile.number; j < count; j += R * tile.tiles) {
        Row rows[R];
#pragma unroll
        for (int r = 0; r < R; ++r) {
          rows[r] = j + r * tile.tiles < count ? singles[j + r * tile.tiles].row : kNoRow;
        }
        update_rows<O, T, V, R>(optimizer, common, update, tile, rows, [&](int r, std::int64_t c) {
          const Single& from = singles[min(j + r * tile.tiles, count - 1)];
          Vec<V> g{};
          if (c >= update.width || from.factor == 0.0f) return g;
          g = load_as<V>(scratch.gradient_type, from.source, c);
          for (int i = 0; i < V; ++i) g.x[i] *= from.factor;
          return g;
        });
      }
    });
  }
}

// The sum of `count` contributions from `place` on, in their order, at columns [c, c + V). The
// lanes of the tile read the addresses together; then several gradients are on their way at a time.
// All lanes call it, also those whose columns lie past the width.
template <int V>
__device__ __forceinline__ Vec<V> sum_contributions(const Scratch& scratch, const Tile& tile,
                                                    std::uint32_t place, std::uint32_t count,
                                                    std::int64_t c, std::int64_t width) {
  constexpr std::uint32_t kAhead = tuning::kContributionsAhead;
  Vec<V> total{};
  for (std::uint32_t base = 0; base < count; base += tile.lanes) {
    const std::uint32_t here = min(count - base, static_cast<std::uint32_t>(tile.lanes));
    unsigned long long source = 0;
    float coefficient = 1.0f;
    if (tile.lane < static_cast<int>(here)) {
      source = reinterpret_cast<unsigned long long>(scratch.sources[place + base + tile.lane]);
      if (scratch.coefficients != nullptr) {
        coefficient = scratch.coefficients[place + base + tile.lane];
      }
    }
    for (std::uint32_t j = 0; j < here; j += kAhead) {
      Vec<V> g[kAhead] = {};
#pragma unroll
      for (std::uint32_t u = 0; u < kAhead; ++u) {
        const auto* from = reinterpret_cast<const void*>(
            tile.shfl(source, static_cast<int>(min(j + u, here - 1))));
        if (c < width) g[u] = load_as<V>(scratch.gradient_type, from, c);
      }
#pragma unroll
      for (std::uint32_t u = 0; u < kAhead; ++u) {
        const float w = tile.shfl(coefficient, static_cast<int>(min(j + u, here - 1)));
        if (j + u >= here || w == 0.0f) continue;
        for (int i = 0; i < V; ++i) total.x[i] += w * g[u].x[i];
      }
    }
  }
  return total;
}

// The sum of `count` pieces' sums from piece `first` on, at columns [c, c + V).
template <int V>
__device__ __forceinline__ Vec<V> sum_pieces(const Scratch& scratch, std::uint32_t first,
                                             std::uint32_t count, std::int64_t c,
                                             std::int64_t width) {
  Vec<V> total{};
  if (c >= width) return total;
#pragma unroll 4
  for (std::uint32_t p = first; p < first + count; ++p) {
    const Vec<V> v = load<float, V>(scratch.partials + p * scratch.partial_width + c);
    for (int i = 0; i < V; ++i) total.x[i] += v.x[i];
  }
  return total;
}

// A block's memory for one sum.
template <int V>
struct BlockSum {
  float of_threads[tuning::kBlock * V];
  bool is_last;
};

// Sums `count` vectors of `width` columns into `to`: the block's tiles share them, and their sums
// meet in shared memory. `sum(begin, count, c)` is a tile's. All threads call it.
template <int V, typename Sum>
__device__ __forceinline__ void sum_in_block(BlockSum<V>& shared, const Tile& tile,
                                             std::uint32_t count, std::int64_t width, float* to,
                                             Sum&& sum) {
  const int columns = tile.lanes * V;
  const std::uint32_t tiles = tuning::kBlock / tile.lanes;
  const std::uint32_t share = (count + tiles - 1) / tiles;
  const std::uint32_t begin = min(threadIdx.x / tile.lanes * share, count);
  for (std::int64_t first = 0; first < width; first += columns) {
    const Vec<V> mine = sum(begin, min(share, count - begin), first + tile.lane * V);
    __syncthreads();  // the sums before these have been read
    for (int i = 0; i < V; ++i) shared.of_threads[threadIdx.x * V + i] = mine.x[i];
    __syncthreads();
    const int column = threadIdx.x;
    if (column >= columns || first + column >= width) continue;
    float total = 0;
    for (std::uint32_t t = 0; t * share < count; ++t) {
      total += shared.of_threads[t * columns + column];
    }
    to[first + column] = total;
  }
  __syncthreads();
}

// Sums piece number p. If all others of its segment are summed, adds up their sums too: the total
// lies where the first piece's sum was. All threads of the block call it. Returns whether the
// segment's total is complete.
template <int V, typename Where>
__device__ __forceinline__ bool sum_piece(const Scratch& scratch, const Tables<Where>& tables,
                                          const Tile& tile, std::int64_t p, BlockSum<V>& shared) {
  const Piece piece = scratch.pieces[p];
  Segment& segment = scratch.segments[piece.segment];
  const std::int64_t width = tables[segment.table].width;
  const auto partial = [&](std::int64_t of) {
    return scratch.partials + of * scratch.partial_width;
  };
  sum_in_block(shared, tile, piece.count, width, partial(p),
               [&](std::uint32_t begin, std::uint32_t count, std::int64_t c) {
                 return sum_contributions<V>(scratch, tile, piece.place + begin, count, c, width);
               });
  const std::uint32_t pieces = segment.pieces();
  if (pieces == 1) return true;
  if (threadIdx.x == 0) {
    __threadfence();  // the sum is there before it is counted
    shared.is_last = atomicAdd(&segment.summed, 1u) + 1 == pieces;
    __threadfence();  // those that were counted are there
  }
  __syncthreads();
  if (!shared.is_last) return false;
  const std::uint32_t first = segment.first_piece;
  sum_in_block(shared, tile, pieces, width, partial(first),
               [&](std::uint32_t begin, std::uint32_t count, std::int64_t c) {
                 return sum_pieces<V>(scratch, first + begin, count, c, width);
               });
  return true;
}

// A block takes a piece, or rows for its warps: so few a warp that every warp has some, but at
// least one a tile, and at most kSegmentsAWarp. The pieces come first, for they take longest.
template <typename O, typename T, int V, typename Where>
__global__ void __launch_bounds__(tuning::kBlock, tuning::kSegmentsBlocks)
    segments_kernel(const __grid_constant__ Tables<Where> tables, Scratch scratch) {
  __shared__ Compaction<Segment> compaction;
  __shared__ BlockSum<V> block_sum;
  const std::int64_t segments = scratch.counters->segments();
  const auto pieces = static_cast<std::int64_t>(scratch.counters->pieces);
  const float scale = *tables.scalars.scale;
  const std::int64_t step = *tables.scalars.iterations + 1;
  const int lane = threadIdx.x % kWarp;
  const Tile tile(tables[0].lanes);
  constexpr std::int64_t kWarps = tuning::kBlock / kWarp;
  const std::int64_t warps = gridDim.x * kWarps;
  const std::int64_t share = std::max<std::int64_t>((segments + warps - 1) / warps, tile.tiles);
  const int each = static_cast<int>(std::min<std::int64_t>(share, tuning::kSegmentsAWarp));
  const std::int64_t units = pieces + (segments + kWarps * each - 1) / (kWarps * each);
  for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    Segment segment{};
    int number = -1;
    if (unit < pieces) {
      if (sum_piece<V>(scratch, tables, tile, unit, block_sum) && threadIdx.x == 0) {
        segment = scratch.segments[scratch.pieces[unit].segment];
        number = static_cast<int>(segment.table);
      }
    } else {
      const std::int64_t s = ((unit - pieces) * kWarps + threadIdx.x / kWarp) * each + lane;
      if (lane < each && s < segments) {
        segment = scratch.segments[s];
        if (!segment.is_cut()) number = static_cast<int>(segment.table);
      }
    }
    if (number >= 0) tables[number].places[segment.row] = 0;
    compaction.for_each_table(number, segment, [&](int table, const Segment* of_table, int here) {
      const UpdateArgs& update = tables[table];
      if (*update.table->suppressed != 0) return;
      const O optimizer(update.hyper, step);
      const Common common(update.hyper);
      for (int j = tile.number; j < here; j += tile.tiles) {
        const Segment& from = of_table[j];
        const Row rows[1] = {from.row};
        update_rows<O, T, V, 1>(optimizer, common, update, tile, rows, [&](int, std::int64_t c) {
          Vec<V> g = from.is_cut() ? sum_pieces<V>(scratch, from.first_piece, 1, c, update.width)
                                   : sum_contributions<V>(scratch, tile, from.place, from.count, c,
                                                          update.width);
          for (int i = 0; i < V; ++i) g.x[i] *= scale;
          return g;
        });
      }
    });
  }
}

}  // namespace

Status apply(Context& context, const Kind& kind, const Features& features,
             const Descriptors<UpdateArgs>& tables, const StepScalars& scalars,
             const Scratch& scratch, std::int64_t ids) {
  return with_vector(std::get<1>(kind), std::get<3>(kind) ? 4 : 1, [&](auto type, auto v) {
    using T = decltype(type);
    constexpr int V = v();
    return with_optimizer(std::get<0>(kind), [&](auto* functor) {
      using O = std::remove_pointer_t<decltype(functor)>;
      return features.launch([&](auto where, const auto& args) {
        using Where = decltype(where);
        const Tables<Where> of_launch{scalars, tables.list<Where>()};
        const int each = singles_a_warp(ids);
        SOK_RETURN_IF_ERROR(launch(context, "singles", singles_kernel<O, T, V, Where>,
                                   (ids + each - 1) / each * kWarp, tuning::kBlock, args, of_launch,
                                   scratch, each));
        return launch(context, "segments", segments_kernel<O, T, V, Where>,
                      ids / 2 / tuning::kSegmentsAWarp * kWarp + kWarp, tuning::kBlock, of_launch,
                      scratch);
      });
    });
  });
}

}  // namespace sok::cuda
