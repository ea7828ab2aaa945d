// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Forward: which kernel each feature needs, and what it is told.
#include <algorithm>
#include <map>
#include <tuple>

#include "cuda/features.cuh"
#include "cuda/launch.cuh"
#include "cuda/lookup_copy.cuh"
#include "cuda/lookup_rows.cuh"
#include "cuda/lookup_tile.cuh"
#include "cuda/resolve_features.cuh"
#include "cuda/stages.h"
#include "cuda/tuning.h"

namespace sok::cuda {
namespace {

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
  // Of the wider of the two types: 8 floats would be written in two pieces, each of half sectors.
  const int in_16_bytes =
      16 / std::max(row_type_bytes(config.row_type), row_type_bytes(feature.output.type));
  const int v = config.dimension % in_16_bytes == 0 ? in_16_bytes
                : config.dimension % 4 == 0         ? 4
                                                    : 1;
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
    if (limits.usable) shape->work = Work::kBulkCopy;
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

// Bags for each tile, no more than it has lanes: enough that every lane finds some ids, but not so
// many that fewer than `warps` have work.
void share_out(int rounds, std::int64_t warps, std::vector<FeatureArgs>* features) {
  std::int64_t of_one_bag = 0;  // warps, were each tile to have one
  for (const FeatureArgs& f : *features) of_one_bag += f.bags.bags * f.lanes / 32;
  const std::int64_t most = std::max<std::int64_t>(1, of_one_bag / warps);
  for (FeatureArgs& f : *features) {
    const std::int64_t length =
        std::max<std::int64_t>(1, f.bags.ids_count() / std::max<std::int64_t>(1, f.bags.bags));
    f.bags_per_tile = static_cast<std::int32_t>(std::clamp<std::int64_t>(
        f.lanes * rounds / length, 1, std::min<std::int64_t>(most, f.lanes)));
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
    if constexpr (sizeof(type) == 2) {
      if (shape.v == 8) return with_v(Int<8>{});
    }
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
                    args.units * 32, tuning::kLookupBlock, args);
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
    if (shape.work == Work::kBulkCopy) {
      share_out(1, tuning::kCopyBusyWarps, &group.items());
    } else {
      share_out(tuning::kLookupRounds, tuning::kLookupBusyWarps, &group.items());
    }
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

}  // namespace sok::cuda
