// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Forward: a tile of lanes, as many as a row has vectors, walks a few bags. Its lanes first find
// the rows of as many ids, one each, then read those rows together, several at a time, and add them
// up in registers; a bag that ends is scaled and written. The rows of a bag are never stored in
// between.
#include <map>

#include "cuda/launch.cuh"
#include "cuda/lookup_copy.cuh"
#include "cuda/resolve.cuh"
#include "cuda/resolve_features.cuh"
#include "cuda/stages.h"
#include "cuda/vec.cuh"

namespace sok::cuda {
namespace {

// Looks at the row splits of these bags, each lane of the tile at some. Whatever they say, no loop
// reads outside of the ids (Bags::inside).
__device__ void check_splits(const FeatureArgs& feature, const Tile& tile, std::int64_t first_bag,
                             std::int64_t last_bag) {
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

// Columns of the row of id number `i`.
template <typename T, int V>
__device__ __forceinline__ Vec<V> read_columns(const FeatureArgs& feature, Row row, std::int64_t i,
                                               std::int64_t column) {
  if (column >= feature.width) return {};
  if (row == kNoRow) return default_columns<T, V>(*feature.table, feature.bags.ids[i], column);
  return load_once<T, V>(row_pointer<T>(feature, row) + column);
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

// One tile a bag: the dot products of the output's gradient with each row, then the weights'
// gradients.
template <typename T, int V>
__global__ void __launch_bounds__(tuning::kBlock)
    weight_gradients_kernel(const __grid_constant__ FeatureArgs feature,
                            const float* output_gradient, float* gradients) {
  const Bags& bags = feature.bags;
  const Tile tile(feature.lanes);
  const std::int64_t first = thread_index() / 32 * tile.tiles + tile.number;
  for (std::int64_t bag = first; bag < bags.bags; bag += thread_count() / 32 * tile.tiles) {
    const float* g = output_gradient + bag * feature.width;
    const std::int64_t begin = bags.inside(bags.begin(bag));
    const std::int64_t end = bags.inside(bags.end(bag));
    Divisor divisor;
    float dots = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const Row row = find_row(*feature.table, bags.ids[i], i);
      float dot = 0;
      for (std::int64_t c = tile.lane * V; c < feature.width; c += tile.lanes * V) {
        const Vec<V> v = read_columns<T, V>(feature, row, i, c);
        for (int k = 0; k < V; ++k) dot += g[c + k] * v.x[k];
      }
      dot = tile.sum(dot);
      if (feature.max_norm > 0) dot *= norm_scale<T, V>(feature, tile, row, i);
      const float w = bags.weight(i);
      divisor.add(bags.combiner, w);
      dots += w * dot;
      if (tile.lane == 0) gradients[i] = dot;
    }
    if (tile.lane != 0) continue;
    const float scale = divisor.scale(bags.combiner);
    for (std::int64_t i = begin; i < end; ++i) {
      gradients[i] =
          weight_gradient(bags.combiner, scale, bags.weight(i), gradients[i], scale * dots);
    }
  }
}

// What decides which kernel a feature needs: the rows' type, vectors of V columns, K of them a
// lane, and how much there is to do.
struct Shape {
  RowType type = RowType::kFloat32;
  int v = 1, k = 1;
  Work work = Work::kGeneral;

  bool operator<(const Shape& other) const {
    return std::tie(type, v, k, work) < std::tie(other.type, other.v, other.k, other.work);
  }
};

Status shape_of(const LookupFeature& feature, Shape* shape) {
  const TableConfig& config = feature.table->config();
  const int v = config.dimension % 4 == 0 ? 4 : 1;
  const int k = config.dimension <= 32 * v ? 1 : 4;
  if (feature.bags.weights != nullptr || feature.max_norm > 0) {
    *shape = {config.row_type, v, k, Work::kGeneral};
    return {};
  }
  if (feature.bags.row_splits != nullptr || feature.bags.hotness != 1) {
    *shape = {config.row_type, v, k, Work::kUnweighted};
    return {};
  }
  *shape = {config.row_type, v, 1, Work::kOneIdABag};
  if (feature.output.type == config.row_type &&
      suits_bulk_copy(config.dimension * row_type_bytes(config.row_type), feature.output.data)) {
    CopyLimits limits;
    SOK_RETURN_IF_ERROR(with_row_type(
        config.row_type, [&](auto type) { return copy_limits<decltype(type)>(&limits); }));
    if (limits.usable) *shape = {config.row_type, 4, 1, Work::kBulkCopy};
  }
  return {};
}

int lanes_of(const Shape& shape, std::int64_t width) {
  if (shape.work == Work::kBulkCopy) return 32;
  const std::int64_t vectors = (width + shape.v - 1) / shape.v;
  int lanes = 1;
  while (lanes < 32 && lanes * shape.k < vectors) lanes *= 2;
  return lanes;
}

Status describe(Context& context, const LookupFeature& feature, int lanes, FeatureArgs* args) {
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

// Bags for each tile: enough that every lane finds an id, but not so many that some of these warps
// stay idle.
void share_out(std::int64_t warps, std::vector<FeatureArgs>* features) {
  std::int64_t tiles = 0;
  for (const FeatureArgs& f : *features) tiles += f.bags.bags * f.lanes / 32;
  const std::int64_t most = std::max<std::int64_t>(1, tiles / warps);
  for (FeatureArgs& f : *features) {
    const std::int64_t length =
        std::max<std::int64_t>(1, f.bags.ids_count() / std::max<std::int64_t>(1, f.bags.bags));
    f.bags_per_tile = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(f.lanes / length, 1, std::min<std::int64_t>(most, 32)));
  }
}

template <int N>
using Int = std::integral_constant<int, N>;
template <Work W>
using Kind = std::integral_constant<Work, W>;

template <typename F>
Status with_shape(const Shape& shape, F&& f) {
  return with_row_type(shape.type, [&](auto type) {
    const auto with_v = [&](auto v) {
      if (shape.work == Work::kOneIdABag) return f(type, v, Int<1>{}, Kind<Work::kOneIdABag>{});
      if (shape.work == Work::kUnweighted) {
        return shape.k == 1 ? f(type, v, Int<1>{}, Kind<Work::kUnweighted>{})
                            : f(type, v, Int<4>{}, Kind<Work::kUnweighted>{});
      }
      return shape.k == 1 ? f(type, v, Int<1>{}, Kind<Work::kGeneral>{})
                          : f(type, v, Int<4>{}, Kind<Work::kGeneral>{});
    };
    return shape.v == 4 ? with_v(Int<4>{}) : with_v(Int<1>{});
  });
}

Status run(Context& context, const Shape& shape, const Features& features) {
  return features.launch([&](auto where, const auto& args) {
    if (shape.work == Work::kBulkCopy) {
      return with_row_type(shape.type,
                           [&](auto type) { return launch_copies<decltype(type)>(context, args); });
    }
    return with_shape(shape, [&](auto type, auto v, auto k, auto work) {
      return launch(context, "lookup",
                    lookup_kernel<decltype(type), v(), k(), work(), decltype(where)>,
                    args.units * 32, tuning::kBlock, args);
    });
  });
}

}  // namespace

Status lookup(Context& context, const std::vector<LookupFeature>& features, bool insert) {
  std::map<Table*, std::vector<IdSpan>> spans;
  std::int64_t dynamic_ids = 0;
  for (const LookupFeature& feature : features) {
    SOK_RETURN_IF_ERROR(feature.table->check_offending(context));
    if (feature.table->config().is_static()) continue;
    spans[feature.table].push_back({feature.bags.ids, feature.bags.ids_count()});
    dynamic_ids += feature.bags.ids_count();
  }
  if (insert) {
    for (auto& [table, table_spans] : spans) {
      SOK_RETURN_IF_ERROR(reserve(context, table, table_spans));
    }
  }
  std::map<Shape, Features> groups;
  Buffer rows;
  Features inserting;
  if (insert && dynamic_ids > 0) {
    rows = context.allocate(static_cast<std::size_t>(dynamic_ids) * sizeof(Row));
    if (rows.data == nullptr) {
      return resource_exhausted("Lookup: no device memory for the rows of ", dynamic_ids, " ids");
    }
  }
  std::int64_t first_row = 0;
  for (const LookupFeature& feature : features) {
    Shape shape;
    SOK_RETURN_IF_ERROR(shape_of(feature, &shape));
    FeatureArgs args;
    SOK_RETURN_IF_ERROR(
        describe(context, feature, lanes_of(shape, feature.table->config().dimension), &args));
    args.feature_number = static_cast<std::int32_t>(&feature - features.data());
    if (insert && !feature.table->config().is_static()) {
      args.rows = rows.as<Row>() + first_row;
      args.round = feature.table->round();
      first_row += feature.bags.ids_count();
      if (feature.bags.ids_count() > 0) inserting.add(args);
    }
    if (feature.bags.bags > 0) {
      groups[shape].add(args);
    }
  }
  // All memory before the first row changes.
  SOK_RETURN_IF_ERROR(inserting.prepare(context));
  for (auto& [shape, group] : groups) {
    share_out(shape.work == Work::kBulkCopy ? tuning::kCopyBusyWarps : tuning::kBusyWarps,
              &group.items());
    SOK_RETURN_IF_ERROR(group.prepare(context));
  }
  SOK_RETURN_IF_ERROR(inserting.launch([&](auto where, const auto& args) {
    return launch(context, "insert", insert_features_kernel<decltype(where)>, args.ids,
                  tuning::kBlock, args);
  }));
  for (const auto& [shape, group] : groups) {
    SOK_RETURN_IF_ERROR(run(context, shape, group));
  }
  return {};
}

Status weight_gradients(Context& context, const LookupFeature& feature,
                        const float* output_gradient, float* gradients) {
  const TableConfig& config = feature.table->config();
  const int v = config.dimension % 4 == 0 ? 4 : 1;
  FeatureArgs args;
  SOK_RETURN_IF_ERROR(describe(context, feature,
                               lanes_of({config.row_type, v, 1, Work::kGeneral}, config.dimension),
                               &args));
  const std::int64_t threads = feature.bags.bags * args.lanes;
  return with_row_type(config.row_type, [&](auto type) {
    using T = decltype(type);
    return launch(context, "weight_gradients",
                  v == 4 ? weight_gradients_kernel<T, 4> : weight_gradients_kernel<T, 1>, threads,
                  tuning::kBlock, args, output_gradient, gradients);
  });
}

}  // namespace sok::cuda
