// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Update: one kernel finds or inserts 32 keys a warp, then updates their rows, a tile a row. The
// global reach first notes for every row where its gradient is, then walks all rows.
#include <map>
#include <tuple>

#include "cuda/descriptors.cuh"
#include "cuda/launch.cuh"
#include "cuda/resolve.cuh"
#include "cuda/stages.h"
#include "cuda/tuning.h"
#include "cuda/update_rows.cuh"

namespace sok::cuda {
namespace {

template <typename Where>
struct UpdateLaunch {
  std::int32_t count = 0;
  std::int64_t keys = 0;  // padded to whole warps for each table
  StepScalars scalars;
  typename Where::template List<UpdateArgs> tables;

  __device__ const UpdateArgs& find(std::int64_t key) const {
    return tables.items[find_item(tables, count, &UpdateArgs::first_key, key)];
  }
};

// The rows of this warp's 32 keys, new ones initialised.
__device__ __forceinline__ Row rows_of_keys(const UpdateArgs& args, std::int64_t first) {
  const std::int64_t i = first + (threadIdx.x & 31);
  const bool has_key = i < args.count;
  const Key key = has_key ? args.keys[i] : 0;
  const FoundOrInserted found = insert_row(*args.table, has_key, key, i);
  initialize_inserted(*args.table, found.inserted, key, found.row);
  __syncwarp();
  return found.row;
}

// Before the first row changes: an id that a static table refuses suppresses the update.
__global__ void check_ids_kernel(const TableView* table, const Key* keys, std::int64_t count) {
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) {
    static_cast<void>(static_row(*table, keys[i], i));
  }
}

template <typename O, typename T, int V, typename Where>
__global__ void __launch_bounds__(tuning::kBlock)
    update_kernel(const __grid_constant__ UpdateLaunch<Where> launch) {
  for (std::int64_t at = thread_index() / 32 * 32; at < launch.keys; at += thread_count()) {
    const UpdateArgs& args = launch.find(at);
    if (!applies(launch.scalars, *args.table)) continue;
    const std::int64_t first = at - args.first_key;
    const Row row = rows_of_keys(args, first);
    const O optimizer(args.hyper, *launch.scalars.iterations + 1);
    const Common common(args.hyper);
    const float scale = *launch.scalars.scale;
    const Tile tile(args.lanes);
    for (int j = tile.number; j < 32; j += tile.tiles) {
      const Row r = __shfl_sync(kFullMask, row, j);
      if (r == kNoRow) continue;
      const StoredGradient<V> read{args.gradients + (first + j) * args.width, scale, args.width};
      const Row rows[1] = {r};
      update_rows<O, T, V, 1>(optimizer, common, args, tile, rows, read);
    }
  }
}

__global__ void place_kernel(const __grid_constant__ UpdateArgs args, StepScalars scalars) {
  if (!applies(scalars, *args.table)) return;
  for (std::int64_t at = thread_index() / 32 * 32; at < args.count; at += thread_count()) {
    const Row row = rows_of_keys(args, at);
    if (row != kNoRow) args.places[row] = static_cast<std::uint32_t>(at + (threadIdx.x & 31)) + 1;
  }
}

template <typename O, typename T, int V>
__global__ void __launch_bounds__(tuning::kBlock)
    update_all_kernel(const __grid_constant__ UpdateArgs args, StepScalars scalars) {
  if (!applies(scalars, *args.table)) return;
  const TableView& table = *args.table;
  const O optimizer(args.hyper, *scalars.iterations + 1);
  const Common common(args.hyper);
  const Tile tile(args.lanes);
  const std::int64_t places =
      table.is_static() ? table.rows : static_cast<std::int64_t>(table.index.groups) * kGroup;
  const std::int64_t tiles = thread_count() / 32 * tile.tiles;
  for (std::int64_t i = thread_index() / 32 * tile.tiles + tile.number; i < places; i += tiles) {
    Row row = static_cast<Row>(i);
    if (!table.is_static()) {
      if (((table.index.control[i / 8] >> (i % 8 * 8)) & 0x80) != 0) continue;
      row = table.index.slots[i].row;
    }
    const std::uint32_t place = args.places[row];
    __syncwarp(tile.mask);
    if (tile.lane == 0) args.places[row] = 0;
    const StoredGradient<V> read{place == 0 ? nullptr : args.gradients + (place - 1) * args.width,
                                 *scalars.scale, args.width};
    const Row rows[1] = {row};
    update_rows<O, T, V, 1>(optimizer, common, args, tile, rows, read);
  }
}

struct Prepared {
  UpdateArgs args;
  Buffer keys, gradients;
};

// Sums the gradients of equal keys, unless they are known to be different; makes room and
// describes.
Status prepare(Context& context, const TableUpdate& update, Prepared* prepared) {
  Table& table = *update.table;
  const std::int64_t width = table.config().dimension;
  SOK_RETURN_IF_ERROR(table.check_offending(context));
  SOK_RETURN_IF_ERROR(
      table.attach_planes(context, update.optimizer->planes(width, update.initials)));
  UpdateArgs& args = prepared->args;
  args.keys = update.keys;
  args.gradients = update.gradients;
  args.count = update.count;
  if (!update.unique && update.count > 0) {
    MergeFeature each;
    each.bags.ids = update.keys;
    each.bags.bags = update.count;
    each.bags.known_count = update.count;
    each.gradient = {RowType::kFloat32, const_cast<float*>(update.gradients)};
    SOK_RETURN_IF_ERROR(merge(
        context, &table, {each}, [&](std::int64_t count, Key** keys, float** gradients) -> Status {
          prepared->keys = context.allocate(std::max<std::int64_t>(1, count) * sizeof(Key));
          prepared->gradients =
              context.allocate(std::max<std::int64_t>(1, count * width) * sizeof(float));
          if (!prepared->keys.data || !prepared->gradients.data) {
            return resource_exhausted("Update: no device memory for ", count, " merged gradients");
          }
          args.keys = *keys = prepared->keys.as<Key>();
          args.gradients = *gradients = prepared->gradients.as<float>();
          args.count = count;
          return {};
        }));
  }
  SOK_RETURN_IF_ERROR(reserve(context, &table, {{args.keys, args.count}}));
  args.hyper = update.hyper;
  const auto planes = update.optimizer->planes(width, update.initials);
  for (std::size_t s = 0; s < planes.size(); ++s) {
    args.states[s] = table.plane_index(planes[s].name) - 1;
  }
  const bool vectors = table.config().row_type == RowType::kFloat32 && width % 4 == 0;
  args.lanes = lanes_for(width, vectors ? 4 : 1);
  if (update.reach == Reach::kGlobal) SOK_RETURN_IF_ERROR(table.row_tags(context, &args.places));
  args.describe(table.view());
  SOK_RETURN_IF_ERROR(table.device_view(context, &args.table));
  if (!table.config().is_static()) return {};
  return launch(context, "check_ids", check_ids_kernel, args.count, tuning::kBlock, args.table,
                args.keys, args.count);
}

// Tables that share a kernel share a launch.
using UpdateKind = std::tuple<OptimizerId, RowType, bool>;

struct UpdateGroup {
  Descriptors<UpdateArgs> tables;
  std::int64_t keys = 0;

  void add(UpdateArgs table) {
    table.first_key = keys;
    keys += (table.count + 31) / 32 * 32;
    tables.items.push_back(table);
  }
  Status prepare(Context& context) {
    return tables.fit_parameters() ? Status() : tables.upload(context);
  }
};

Status update_all_rows(Context& context, const TableUpdate& update, const UpdateArgs& args,
                       const StepScalars& scalars) {
  const TableConfig& config = update.table->config();
  SOK_RETURN_IF_ERROR(
      launch(context, "place", place_kernel, args.count, tuning::kBlock, args, scalars));
  return with_vector(config.row_type, config.dimension, [&](auto type, auto v) {
    return with_optimizer(update.optimizer->id, [&](auto* functor) {
      using O = std::remove_pointer_t<decltype(functor)>;
      const TableView view = update.table->view();
      const std::int64_t rows =
          view.is_static() ? view.rows : std::int64_t{view.index.groups} * kGroup;
      return launch(context, "update_all", update_all_kernel<O, decltype(type), v()>,
                    rows * args.lanes, tuning::kBlock, args, scalars);
    });
  });
}

Status update_group(Context& context, const UpdateKind& kind, const UpdateGroup& group,
                    const StepScalars& scalars) {
  // Any width does for the choice of the vector: the tables are of one kind.
  const std::int64_t width = std::get<2>(kind) ? 4 : 1;
  return with_vector(std::get<1>(kind), width, [&](auto type, auto v) {
    return with_optimizer(std::get<0>(kind), [&](auto* functor) {
      using O = std::remove_pointer_t<decltype(functor)>;
      return with_place(group.tables.fit_parameters(), [&](auto where) {
        using Where = decltype(where);
        UpdateLaunch<Where> args;
        args.count = static_cast<std::int32_t>(group.tables.items.size());
        args.keys = group.keys;
        args.scalars = scalars;
        args.tables = group.tables.list<Where>();
        return launch(context, "update", update_kernel<O, decltype(type), v(), Where>, group.keys,
                      tuning::kBlock, args);
      });
    });
  });
}

}  // namespace

Status update(Context& context, std::vector<TableUpdate>& updates, const StepScalars& scalars) {
  std::vector<Prepared> prepared(updates.size());
  for (std::size_t i = 0; i < updates.size(); ++i) {
    SOK_RETURN_IF_ERROR(prepare(context, updates[i], &prepared[i]));
  }
  // All memory before the first row changes.
  std::map<UpdateKind, UpdateGroup> groups;
  for (std::size_t i = 0; i < updates.size(); ++i) {
    if (updates[i].reach == Reach::kGlobal) continue;
    const TableConfig& config = updates[i].table->config();
    groups[{updates[i].optimizer->id, config.row_type, config.dimension % 4 == 0}].add(
        prepared[i].args);
  }
  for (auto& [kind, group] : groups) SOK_RETURN_IF_ERROR(group.prepare(context));
  for (std::size_t i = 0; i < updates.size(); ++i) {
    if (updates[i].reach == Reach::kLocal) continue;
    SOK_RETURN_IF_ERROR(update_all_rows(context, updates[i], prepared[i].args, scalars));
  }
  for (const auto& [kind, group] : groups) {
    SOK_RETURN_IF_ERROR(update_group(context, kind, group, scalars));
  }
  return {};
}

}  // namespace sok::cuda
