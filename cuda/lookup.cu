// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Forward: a tile of lanes, as many as a row has vectors, walks a few bags. Its lanes first find the
// rows of as many ids, one each, then read those rows together, several at a time, and add them up in
// registers; a bag that ends is scaled and written. The rows of a bag are never stored in between.
#include <map>

#include "cuda/launch.cuh"
#include "cuda/resolve.cuh"
#include "cuda/resolve_features.cuh"
#include "cuda/stages.h"
#include "cuda/vec.cuh"

namespace sok::cuda {
namespace {

// Ids [begin, end) of a bag, inside the ids there are, whatever the row splits say.
__device__ __forceinline__ std::int64_t clamped(const Bags& bags, std::int64_t i) {
  return i < 0 ? 0 : i > bags.known_count ? bags.known_count : i;
}

template <typename T>
__device__ __forceinline__ const T* row_pointer(const FeatureArgs& feature, Row row) {
  if (row < feature.first_rows) {
    return static_cast<const T*>(feature.slab0) + static_cast<std::int64_t>(row) * feature.width;
  }
  return feature.table->values<T>().row(row);
}

template <typename T, int V>
__device__ __forceinline__ Vec<V> read_columns(const FeatureArgs& feature, Row row, Key key,
                                               std::int64_t column) {
  if (column >= feature.width) return {};
  if (row == kNoRow) return default_columns<T, V>(*feature.table, key, column);
  return load<T, V>(row_pointer<T>(feature, row) + column);
}

// What a row is multiplied with so that it is no longer than max_norm.
template <typename T, int V>
__device__ __noinline__ float norm_scale(const FeatureArgs& feature, const Tile& tile, Row row, Key key) {
  float square = 0;
  for (std::int64_t c = tile.lane * V; c < feature.width; c += tile.lanes * V) {
    const Vec<V> v = read_columns<T, V>(feature, row, key, c);
    for (int i = 0; i < V; ++i) square += v.x[i] * v.x[i];
  }
  const float norm = sqrtf(tile.sum(square));
  return norm > feature.max_norm ? feature.max_norm / norm : 1.0f;
}

// K vectors of V columns a lane, from `column0` on.
template <typename T, int V, int K>
__device__ void combine_bags(const FeatureArgs& feature, const Tile& tile, std::int64_t first_bag,
                             std::int64_t last_bag, std::int64_t column0) {
  constexpr int kAhead = tuning::rows_in_flight(K);
  const Bags& bags = feature.bags;
  const std::int64_t lane_column = column0 + tile.lane * V;
  const std::int64_t step = tile.lanes * V;

  Vec<V> total[K] = {};
  Divisor divisor;
  std::int64_t bag = first_bag;
  std::int64_t bag_begin = clamped(bags, bags.begin(bag));
  std::int64_t bag_end = clamped(bags, bags.end(bag));
  const auto finish_bag = [&] {
    if (bags.weights == nullptr) divisor.total = static_cast<float>(bag_end - bag_begin);
    const float scale = divisor.scale(bags.combiner);
    for (int k = 0; k < K; ++k) {
      const std::int64_t column = lane_column + k * step;
      if (column >= feature.width) break;
      for (int i = 0; i < V; ++i) total[k].x[i] = scale == 0.0f ? 0.0f : scale * total[k].x[i];
      store_as<V>(feature.columns.type, feature.columns.data, bag * feature.width + column, total[k]);
      total[k] = {};
    }
    divisor = {};
    bag_begin = bag_end;
    if (++bag < last_bag) bag_end = clamped(bags, bags.end(bag));
  };

  const std::int64_t last_id = clamped(bags, bags.end(last_bag - 1));
  for (std::int64_t base = bag_begin; base < last_id; base += tile.lanes) {
    const int count = static_cast<int>(last_id - base < tile.lanes ? last_id - base : tile.lanes);
    Key key = 0;
    Row row = kNoRow;
    float weight = 1.0f;
    if (tile.lane < count) {
      const std::int64_t i = base + tile.lane;
      key = bags.ids[i];
      row = feature.rows != nullptr ? feature.rows[i] : find_row(*feature.table, key, i);
      if (bags.weights != nullptr) weight = bags.weights[i];
    }
    for (int j = 0; j < count; j += kAhead) {
      Vec<V> read[kAhead][K];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        if (j + u >= count) break;
        const Row r = tile.shfl(row, j + u);
        const Key id = tile.shfl(key, j + u);
#pragma unroll
        for (int k = 0; k < K; ++k) {
          read[u][k] = read_columns<T, V>(feature, r, id, lane_column + k * step);
        }
      }
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        if (j + u >= count) break;
        while (base + j + u >= bag_end) finish_bag();
        float w = tile.shfl(weight, j + u);
        if (bags.weights != nullptr) divisor.add(bags.combiner, w);
        if (feature.max_norm > 0) {
          w *= norm_scale<T, V>(feature, tile, tile.shfl(row, j + u), tile.shfl(key, j + u));
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

template <typename T, int V, int K>
__global__ void __launch_bounds__(tuning::kBlock)
    lookup_kernel(const __grid_constant__ LaunchArgs args) {
  const std::int64_t warps = thread_count() / 32;
  for (std::int64_t unit = thread_index() / 32; unit < args.units; unit += warps) {
    const FeatureArgs& feature = args.find(&FeatureArgs::first_unit, unit);
    const Tile tile(feature.lanes);
    const std::int64_t first_bag =
        ((unit - feature.first_unit) * tile.tiles + tile.number) * feature.bags_per_tile;
    if (first_bag >= feature.bags.bags) continue;
    const std::int64_t past = first_bag + feature.bags_per_tile;
    const std::int64_t last_bag = past < feature.bags.bags ? past : feature.bags.bags;
    for (std::int64_t column = 0; column < feature.width; column += tile.lanes * V * K) {
      combine_bags<T, V, K>(feature, tile, first_bag, last_bag, column);
    }
  }
}

// One tile a bag: the dot products of the output's gradient with each row, then the weights' gradients.
template <typename T, int V>
__global__ void __launch_bounds__(tuning::kBlock)
    weight_gradients_kernel(const __grid_constant__ FeatureArgs feature, const float* output_gradient,
                            float* gradients) {
  const Bags& bags = feature.bags;
  const Tile tile(feature.lanes);
  const std::int64_t first = thread_index() / 32 * tile.tiles + tile.number;
  for (std::int64_t bag = first; bag < bags.bags; bag += thread_count() / 32 * tile.tiles) {
    const float* g = output_gradient + bag * feature.width;
    const std::int64_t begin = clamped(bags, bags.begin(bag));
    const std::int64_t end = clamped(bags, bags.end(bag));
    Divisor divisor;
    float dots = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const Key key = bags.ids[i];
      const Row row = find_row(*feature.table, key, i);
      float dot = 0;
      for (std::int64_t c = tile.lane * V; c < feature.width; c += tile.lanes * V) {
        const Vec<V> v = read_columns<T, V>(feature, row, key, c);
        for (int k = 0; k < V; ++k) dot += g[c + k] * v.x[k];
      }
      dot = tile.sum(dot);
      if (feature.max_norm > 0) dot *= norm_scale<T, V>(feature, tile, row, key);
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

// The shape of a kernel: vectors of V columns, K of them a lane.
struct Shape {
  RowType type;
  int v, k;

  bool operator<(const Shape& other) const {
    return std::tie(type, v, k) < std::tie(other.type, other.v, other.k);
  }
};

Shape shape_of(RowType type, std::int64_t width) {
  const int v = width % 4 == 0 ? 4 : 1;
  const std::int64_t vectors = (width + v - 1) / v;
  return {type, v, vectors <= 32 ? 1 : vectors <= 64 ? 2 : 4};
}

int lanes_of(const Shape& shape, std::int64_t width) {
  const std::int64_t vectors = (width + shape.v - 1) / shape.v;
  int lanes = 1;
  while (lanes < 32 && lanes * shape.k < vectors) lanes *= 2;
  return lanes;
}

Status describe(Context& context, const LookupFeature& feature, FeatureArgs* args) {
  const Table& table = *feature.table;
  SOK_RETURN_IF_ERROR(feature.table->device_view(context, &args->table));
  const TableView view = table.view();
  args->slab0 = view.slab0;
  args->first_rows = view.shape.first;
  args->width = view.width;
  args->bags = feature.bags;
  args->columns = feature.output;
  args->max_norm = feature.max_norm;
  args->lanes = lanes_of(shape_of(view.row_type, view.width), view.width);
  return {};
}

// Bags for each tile: enough that every lane finds an id, but not so many that warps stay idle.
void share_out(std::vector<FeatureArgs>* features) {
  std::int64_t tiles = 0;
  for (const FeatureArgs& f : *features) tiles += f.bags.bags * f.lanes / 32;
  const std::int64_t most = std::max<std::int64_t>(1, tiles / tuning::kBusyWarps);
  for (FeatureArgs& f : *features) {
    const std::int64_t length =
        std::max<std::int64_t>(1, f.bags.ids_count() / std::max<std::int64_t>(1, f.bags.bags));
    f.bags_per_tile = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(f.lanes / length, 1, std::min<std::int64_t>(most, 32)));
  }
}

template <typename F>
Status with_shape(const Shape& shape, F&& f) {
  return with_row_type(shape.type, [&](auto type) {
    using std::integral_constant;
    const auto with_v = [&](auto v) {
      if (shape.k == 1) return f(type, v, integral_constant<int, 1>{});
      if (shape.k == 2) return f(type, v, integral_constant<int, 2>{});
      return f(type, v, integral_constant<int, 4>{});
    };
    return shape.v == 4 ? with_v(integral_constant<int, 4>{}) : with_v(integral_constant<int, 1>{});
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
  std::map<Shape, std::vector<FeatureArgs>> groups;
  Buffer rows;
  std::vector<FeatureArgs> inserting;
  if (insert && dynamic_ids > 0) {
    rows = context.allocate(static_cast<std::size_t>(dynamic_ids) * sizeof(Row));
    if (rows.data == nullptr) {
      return resource_exhausted("Lookup: no device memory for the rows of ", dynamic_ids, " ids");
    }
  }
  std::int64_t first_row = 0;
  for (const LookupFeature& feature : features) {
    FeatureArgs args;
    SOK_RETURN_IF_ERROR(describe(context, feature, &args));
    if (insert && !feature.table->config().is_static()) {
      args.rows = rows.as<Row>() + first_row;
      first_row += feature.bags.ids_count();
      if (feature.bags.ids_count() > 0) inserting.push_back(args);
    }
    if (feature.bags.bags > 0) {
      groups[shape_of(feature.table->config().row_type, args.width)].push_back(args);
    }
  }
  SOK_RETURN_IF_ERROR(for_each_launch(inserting, [&](const auto& args) {
    return launch(context, "insert", insert_features_kernel, args.ids, tuning::kBlock, args);
  }));
  for (auto& group : groups) {
    const Shape shape = group.first;
    share_out(&group.second);
    SOK_RETURN_IF_ERROR(for_each_launch(group.second, [&](const auto& args) {
      return with_shape(shape, [&](auto type, auto v, auto k) {
        return launch(context, "lookup", lookup_kernel<decltype(type), v(), k()>,
                      args.units * 32, tuning::kBlock, args);
      });
    }));
  }
  return {};
}

Status weight_gradients(Context& context, const LookupFeature& feature,
                        const float* output_gradient, float* gradients) {
  FeatureArgs args;
  SOK_RETURN_IF_ERROR(describe(context, feature, &args));
  const Shape shape = shape_of(feature.table->config().row_type, args.width);
  args.lanes = lanes_of({shape.type, shape.v, 1}, args.width);
  const std::int64_t threads = feature.bags.bags * args.lanes;
  return with_shape({shape.type, shape.v, 1}, [&](auto type, auto v, auto) {
    return launch(context, "weight_gradients", weight_gradients_kernel<decltype(type), v()>, threads,
                  tuning::kBlock, args, output_gradient, gradients);
  });
}

}  // namespace sok::cuda
