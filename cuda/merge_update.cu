// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Merge and update in one pass, for all tables: where nothing looks at the gradients of rows, they are
// summed in registers and go straight into the optimizer. No summed gradient is stored, and the host
// waits for nothing.
//
//   collect   every id finds its row (a new one is inserted) and its rank among the row's ids
//   segment   every row's count becomes a place in the order of rows; long segments are cut
//   scatter   every id puts the address of its bag's gradient into its place
//   partial   the pieces of long segments are summed, a tile a piece
//   apply     a tile a row: sum of its segment, or of its pieces, then the optimizer
#include <cub/block/block_scan.cuh>
#include <map>
#include <tuple>

#include "cuda/launch.cuh"
#include "cuda/merge.cuh"
#include "cuda/resolve_features.cuh"
#include "cuda/stages.h"
#include "cuda/update_rows.cuh"

namespace sok::cuda {
namespace {

struct Entry {
  Row row;
  std::uint32_t table;
};

struct Segment {
  std::uint32_t place;        // of its first contribution
  std::uint32_t count;
  std::uint32_t first_piece;  // if it has more than tuning::kPiece
  std::uint32_t unused;
};

struct Piece {
  std::uint32_t place;
  std::uint32_t count;
  std::uint32_t table;
};

// Rows of the batch in the high half, ids placed in the low one: one atomic operation counts both.
struct Counters {
  unsigned long long rows_and_ids, pieces;

  __device__ std::int64_t rows() const { return static_cast<std::int64_t>(rows_and_ids >> 32); }
};

struct Scratch {
  Counters* counters;
  Row* rows;                  // by id
  std::uint32_t* ranks;       // by id
  Entry* entries;             // by row of the batch
  Segment* segments;          // likewise
  const void** sources;       // by place
  float* coefficients;        // by place; null: all are 1
  Piece* pieces;
  float* partials;            // by piece, [width of the widest table]
  std::int64_t partial_width;
  RowType gradient_type;
};

// The tables of one launch.
struct Tables {
  std::int32_t count = 0;
  StepScalars scalars;
  UpdateArgs tables[tuning::kFeaturesALaunch];
};

__global__ void __launch_bounds__(tuning::kBlock)
    collect_kernel(const __grid_constant__ LaunchArgs args, Scratch scratch, StepScalars scalars,
                   std::int64_t first_id) {
  const std::int64_t padded = (args.ids + 31) / 32 * 32;
  for (std::int64_t p = thread_index(); p < padded; p += thread_count()) {
    const FeatureArgs& feature = args.find(&FeatureArgs::first_id, p < args.ids ? p : args.ids - 1);
    const TableView& table = *feature.table;
    const std::int64_t i = p - feature.first_id;
    FoundOrInserted found{kNoRow, false};
    Key id = 0;
    if (p < args.ids && applies(scalars, table)) {
      id = feature.bags.ids[i];
      found = insert_row(table, id, i);
    }
    initialize_inserted_of_any_table(feature.table, found.inserted, id, found.row);
    if (p >= args.ids) continue;
    scratch.rows[first_id + p] = found.row;
    if (found.row == kNoRow) continue;
    scratch.ranks[first_id + p] = atomicAdd(feature.tags + found.row, 1u);
  }
}

// Cuts a long segment into pieces.
__device__ void cut(const Scratch& scratch, std::uint32_t table, Segment* segment) {
  const std::uint32_t pieces = (segment->count + tuning::kPiece - 1) / tuning::kPiece;
  segment->first_piece = static_cast<std::uint32_t>(
      atomicAdd(&scratch.counters->pieces, static_cast<unsigned long long>(pieces)));
  for (std::uint32_t j = 0; j < pieces; ++j) {
    const std::uint32_t done = j * tuning::kPiece;
    scratch.pieces[segment->first_piece + j] = {
        segment->place + done,
        min(segment->count - done, static_cast<std::uint32_t>(tuning::kPiece)), table};
  }
}

// The id that came first to a row, of rank 0, speaks for the row.
__global__ void __launch_bounds__(tuning::kBlock)
    segment_kernel(const __grid_constant__ LaunchArgs args, Scratch scratch, std::int64_t first_id) {
  constexpr int kItems = 4;  // ids a thread: a quarter of the atomic operations on one counter
  using Scan = cub::BlockScan<unsigned long long, tuning::kBlock>;
  __shared__ typename Scan::TempStorage storage;
  __shared__ unsigned long long block_start;
  const std::int64_t chunk = static_cast<std::int64_t>(blockDim.x) * kItems;
  for (std::int64_t base = blockIdx.x * chunk; base < args.ids; base += gridDim.x * chunk) {
    std::uint32_t* tags[kItems];
    Entry entries[kItems];
    unsigned long long counts[kItems], total = 0;
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      const std::int64_t p = base + u * blockDim.x + threadIdx.x;
      counts[u] = 0;
      if (p >= args.ids) continue;
      const Row row = scratch.rows[first_id + p];
      if (row == kNoRow || scratch.ranks[first_id + p] != 0) continue;
      const FeatureArgs& feature = args.find(&FeatureArgs::first_id, p);
      tags[u] = feature.tags + row;
      entries[u] = {row, static_cast<std::uint32_t>(feature.table_number)};
      counts[u] = 1ULL << 32 | *tags[u];
    }
    // One scan an item, not one over all: neighbouring threads then write neighbouring results.
    unsigned long long before[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      unsigned long long here = 0;
      Scan(storage).ExclusiveSum(counts[u], before[u], here);
      before[u] += total;
      total += here;
      __syncthreads();
    }
    if (threadIdx.x == 0) block_start = atomicAdd(&scratch.counters->rows_and_ids, total);
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      if (counts[u] == 0) continue;
      const unsigned long long at = block_start + before[u];
      const auto ids = static_cast<std::uint32_t>(counts[u]);
      Segment segment{static_cast<std::uint32_t>(at), ids, 0, 0};
      if (ids > tuning::kPiece) cut(scratch, entries[u].table, &segment);
      scratch.entries[at >> 32] = entries[u];
      scratch.segments[at >> 32] = segment;
      *tags[u] = segment.place;
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(tuning::kBlock)
    scatter_kernel(const __grid_constant__ LaunchArgs args, Scratch scratch, std::int64_t first_id) {
  for (std::int64_t p = thread_index(); p < args.ids; p += thread_count()) {
    const FeatureArgs& feature = args.find(&FeatureArgs::first_id, p);
    const std::int64_t i = p - feature.first_id;
    if (i == 0) feature.table->source.report(feature.round);
    const Row row = scratch.rows[first_id + p];
    if (row == kNoRow) continue;
    const std::int64_t bag = bag_of(feature.bags, i);
    const std::uint32_t place = feature.tags[row] + scratch.ranks[first_id + p];
    const int bytes = feature.columns.type == RowType::kFloat32 ? 4 : 2;
    scratch.sources[place] =
        static_cast<const char*>(feature.columns.data) + bag * feature.width * bytes;
    if (scratch.coefficients == nullptr) continue;
    const float scale = feature.bags.scale(bag);
    scratch.coefficients[place] = scale == 0.0f ? 0.0f : scale * feature.bags.weight(i);
  }
}

// The sum of `count` contributions from `place` on, in their order, at columns [c, c + V). The lanes of
// the tile read the addresses together; then several gradients are on their way at a time. All lanes
// call it, also those whose columns lie past the width.
template <int V>
__device__ __noinline__ Vec<V> sum_contributions(const Scratch& scratch, const Tile& tile,
                                                 std::uint32_t place, std::uint32_t count,
                                                 std::int64_t c, std::int64_t width) {
  constexpr std::uint32_t kAhead = 8;
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

template <int V>
__device__ __noinline__ Vec<V> sum_pieces(const Scratch& scratch, std::uint32_t first_piece,
                                          std::uint32_t count, std::int64_t c, std::int64_t width) {
  const std::uint32_t pieces = (count + tuning::kPiece - 1) / tuning::kPiece;
  const float* partial = scratch.partials + first_piece * scratch.partial_width + c;
  Vec<V> total{};
  if (c >= width) return total;
#pragma unroll 4
  for (std::uint32_t p = 0; p < pieces; ++p) {
    const Vec<V> v = load<float, V>(partial + p * scratch.partial_width);
    for (int i = 0; i < V; ++i) total.x[i] += v.x[i];
  }
  return total;
}

template <int V>
__global__ void __launch_bounds__(tuning::kBlock)
    partial_kernel(const __grid_constant__ Tables tables, Scratch scratch) {
  const auto pieces = static_cast<std::int64_t>(scratch.counters->pieces);
  const Tile tile(32);
  for (std::int64_t p = thread_index() / 32; p < pieces; p += thread_count() / 32) {
    const Piece piece = scratch.pieces[p];
    const std::int64_t width = tables.tables[piece.table].table->width;
    for (std::int64_t first = 0; first < width; first += 32 * V) {
      const std::int64_t c = first + tile.lane * V;
      const Vec<V> sum =
          sum_contributions<V>(scratch, tile, piece.place, piece.count, c, width);
      if (c < width) store<float, V>(scratch.partials + p * scratch.partial_width + c, sum);
    }
  }
}

template <typename O, typename T, int V>
__global__ void __launch_bounds__(tuning::kBlock, 4)
    apply_kernel(const __grid_constant__ Tables tables, Scratch scratch) {
  const auto count = scratch.counters->rows();
  const float scale = *tables.scalars.scale;
  const std::int64_t step = *tables.scalars.step;
  const int lane = threadIdx.x & 31;
  for (std::int64_t first = thread_index() / 32 * 32; first < count; first += thread_count()) {
    // 32 rows a warp: what describes them is read side by side.
    Entry entry{kNoRow, 0};
    Segment segment{};
    unsigned long long source = 0;
    float coefficient = 1.0f;
    if (first + lane < count) {
      entry = scratch.entries[first + lane];
      segment = scratch.segments[first + lane];
      source = reinterpret_cast<unsigned long long>(scratch.sources[segment.place]);
      if (scratch.coefficients != nullptr) coefficient = scratch.coefficients[segment.place];
      tables.tables[entry.table].places[entry.row] = 0;
    }
    const int here = static_cast<int>(count - first < 32 ? count - first : 32);
    const Tile tile(tables.tables[0].lanes);
    for (int j = tile.number; j < 32; j += tile.tiles) {
      const Row row = __shfl_sync(kFullMask, entry.row, j);
      const std::uint32_t number = __shfl_sync(kFullMask, entry.table, j);
      const std::uint32_t place = __shfl_sync(kFullMask, segment.place, j);
      const std::uint32_t ids = __shfl_sync(kFullMask, segment.count, j);
      const std::uint32_t first_piece = __shfl_sync(kFullMask, segment.first_piece, j);
      const auto* first_source =
          reinterpret_cast<const void*>(__shfl_sync(kFullMask, source, j));
      const float w = __shfl_sync(kFullMask, coefficient, j);
      if (j >= here) continue;
      const UpdateArgs& args = tables.tables[number];
      const O optimizer(args.hyper, step);
      const Common common(args.hyper);
      if (ids == 1) {
        // Most rows: nothing, not even a call, stands between the loads of weights and gradient.
        const float factor = w == 0.0f ? 0.0f : w * scale;
        update_row<O, T, V>(optimizer, common, args, tile, row, [&](std::int64_t c) {
          Vec<V> g{};
          if (c >= args.width || factor == 0.0f) return g;
          g = load_as<V>(scratch.gradient_type, first_source, c);
          for (int i = 0; i < V; ++i) g.x[i] *= factor;
          return g;
        });
      } else {
        update_row<O, T, V>(optimizer, common, args, tile, row, [&](std::int64_t c) {
          Vec<V> g = ids <= tuning::kPiece
                         ? sum_contributions<V>(scratch, tile, place, ids, c, args.width)
                         : sum_pieces<V>(scratch, first_piece, ids, c, args.width);
          for (int i = 0; i < V; ++i) g.x[i] *= scale;
          return g;
        });
      }
    }
  }
}

// Tables that share kernels: one pass each.
using Kind = std::tuple<OptimizerId, RowType, RowType, bool, int>;

struct Group {
  std::vector<FeatureArgs> features;
  Tables tables;
  std::map<Table*, int> numbers;
  std::int64_t ids = 0, widest = 0;
  bool plain = true;
};

Status run(Context& context, const Kind& kind, Group& group) {
  const std::int64_t ids = group.ids;
  if (ids == 0) return {};
  if (ids > 0xffffffffLL) return invalid_argument("Update: ", ids, " ids in one batch, at most 2^32");
  const std::int64_t pieces = 2 * ids / tuning::kPiece + 2;
  Arena arena(context);
  Scratch scratch{};
  scratch.counters = arena.take<Counters>(1);
  scratch.rows = arena.take<Row>(ids);
  scratch.ranks = arena.take<std::uint32_t>(ids);
  scratch.entries = arena.take<Entry>(ids);
  scratch.segments = arena.take<Segment>(ids);
  scratch.sources = arena.take<const void*>(ids);
  if (!group.plain) scratch.coefficients = arena.take<float>(ids);
  scratch.pieces = arena.take<Piece>(pieces);
  scratch.partials = arena.take<float>(pieces * group.widest);
  scratch.partial_width = group.widest;
  scratch.gradient_type = std::get<2>(kind);
  if (arena.failed()) return resource_exhausted("Update: no device memory for ", ids, " ids");
  SOK_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(scratch.counters, 0, sizeof(Counters), stream_of(context)));
  for (FeatureArgs& feature : group.features) {
    feature.tags = group.tables.tables[feature.table_number].places;
  }
  std::int64_t first_id = 0;
  SOK_RETURN_IF_ERROR(for_each_launch(group.features, [&](const LaunchArgs& args) {
    const Status status = launch(context, "collect", collect_kernel, args.ids, tuning::kBlock, args,
                                 scratch, group.tables.scalars, first_id);
    first_id += args.ids;
    return status;
  }));
  first_id = 0;
  SOK_RETURN_IF_ERROR(for_each_launch(group.features, [&](const LaunchArgs& args) {
    const Status status = launch(context, "segment", segment_kernel, (args.ids + 3) / 4,
                                 tuning::kBlock, args, scratch, first_id);
    first_id += args.ids;
    return status;
  }));
  first_id = 0;
  SOK_RETURN_IF_ERROR(for_each_launch(group.features, [&](const LaunchArgs& args) {
    const Status status = launch(context, "scatter", scatter_kernel, args.ids, tuning::kBlock, args,
                                 scratch, first_id);
    first_id += args.ids;
    return status;
  }));
  return with_vector(std::get<1>(kind), std::get<3>(kind) ? 4 : 1, [&](auto type, auto v) {
    constexpr int V = v();
    SOK_RETURN_IF_ERROR(launch(context, "partial", partial_kernel<V>, pieces * 32, tuning::kBlock,
                               group.tables, scratch));
    return with_optimizer(std::get<0>(kind), [&](auto* functor) {
      using O = std::remove_pointer_t<decltype(functor)>;
      return launch(context, "apply", apply_kernel<O, decltype(type), V>, ids,
                    tuning::kBlock, group.tables, scratch);
    });
  });
}

}  // namespace

Status merge_update(Context& context, const std::vector<MergeUpdate>& updates,
                    const StepScalars& scalars) {
  std::map<Kind, Group> groups;
  for (const MergeUpdate& update : updates) {
    Table& table = *update.update.table;
    const std::int64_t width = table.config().dimension;
    SOK_RETURN_IF_ERROR(table.check_offending(context));
    std::vector<IdSpan> spans;
    for (const MergeFeature& feature : update.features) {
      spans.push_back({feature.bags.ids, feature.bags.ids_count()});
    }
    SOK_RETURN_IF_ERROR(
        table.attach_planes(context, update.update.optimizer->planes(width, update.update.initials)));
    SOK_RETURN_IF_ERROR(reserve(context, &table, spans));
    UpdateArgs args;
    args.hyper = update.update.hyper;
    const auto planes = update.update.optimizer->planes(width, update.update.initials);
    for (std::size_t s = 0; s < planes.size(); ++s) {
      args.states[s] = table.plane_index(planes[s].name) - 1;
    }
    SOK_RETURN_IF_ERROR(table.row_tags(context, &args.places));
    SOK_RETURN_IF_ERROR(table.device_view(context, &args.table));
    args.describe(table.view());
    const bool vectors = table.config().row_type == RowType::kFloat32 && width % 4 == 0;
    args.lanes = lanes_for(width, vectors ? 4 : 1);
    for (const MergeFeature& feature : update.features) {
      if (feature.bags.ids_count() == 0) continue;
      Group& group = groups[{update.update.optimizer->id, table.config().row_type,
                             feature.gradient.type, vectors, args.lanes}];
      const auto [at, added] = group.numbers.insert({&table, group.tables.count});
      if (added) {
        if (group.tables.count == tuning::kFeaturesALaunch) {
          return invalid_argument("Update: more than ", tuning::kFeaturesALaunch,
                                  " tables of one kind in one pass");
        }
        group.tables.tables[group.tables.count++] = args;
        group.tables.scalars = scalars;
      }
      FeatureArgs described;
      described.table = args.table;
      described.round = table.round();
      described.width = width;
      described.bags = feature.bags;
      described.columns = feature.gradient;
      described.table_number = at->second;
      group.features.push_back(described);
      group.ids += feature.bags.ids_count();
      group.widest = std::max(group.widest, width);
      group.plain = group.plain && feature.bags.combiner == Combiner::kSum &&
                    feature.bags.weights == nullptr;
    }
  }
  for (auto& group : groups) SOK_RETURN_IF_ERROR(run(context, group.first, group.second));
  return {};
}

}  // namespace sok::cuda
