// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "cc_ops/cpu/catch_up.h"
#include "cc_ops/cpu/stages.h"
#include "cc_ops/cpu/update_rows.h"
#include "cc_ops/cpu/vector_ops.h"

namespace sok::cpu {
namespace {

// Keys that occur once, and their rows.
struct Prepared {
  std::vector<Key> merged_keys;
  std::vector<float> merged_gradients;
  const Key* keys = nullptr;
  const float* gradients = nullptr;
  std::int64_t count = 0;
  std::vector<Row> rows;
};

// Sums the gradients of equal keys, unless they are known to be different.
Status merge_keys(Executor& executor, const TableUpdate& update, Prepared* prepared) {
  prepared->keys = update.keys;
  prepared->gradients = update.gradients;
  prepared->count = update.count;
  if (update.unique) return {};
  const std::int64_t width = update.table->config().dimension;
  MergeFeature each;
  each.bags.ids = update.keys;
  each.bags.bags = update.count;
  each.gradient = {RowType::kFloat32, const_cast<float*>(update.gradients)};
  const Merge merge(executor, *update.table, {each}, width);
  SOK_RETURN_IF_ERROR(merge.grouping().check());
  prepared->merged_keys.resize(merge.count());
  prepared->merged_gradients.resize(merge.count() * width);
  merge.write(executor, prepared->merged_keys.data(), prepared->merged_gradients.data());
  prepared->keys = prepared->merged_keys.data();
  prepared->gradients = prepared->merged_gradients.data();
  prepared->count = merge.count();
  return {};
}

void find_rows(Executor& executor, Table* table, Prepared* prepared) {
  prepared->rows.resize(prepared->count);
  const Insertions insertions({table});
  executor.parallel_for(prepared->count, 30, [&](std::int64_t begin, std::int64_t end) {
    table->find_or_insert_distinct(prepared->keys + begin, end - begin,
                                   prepared->rows.data() + begin);
  });
}

void update_range(const RowUpdate& update, const Row* rows, const float* const* gradients,
                  std::int64_t begin, std::int64_t end) {
  prefetch_rows(update, rows + begin, std::min(kRowsAhead, end - begin));
  for (std::int64_t i = begin; i < end; i += kRowsAhead) {
    const std::int64_t n = std::min(kRowsAhead, end - i);
    prefetch_rows(update, rows + i + n, std::min(kRowsAhead, end - i - n));
    update_rows(update, rows + i, gradients + i, n);
  }
}

// Every row of the table gets an update; those outside the batch with a zero gradient.
void update_globally(Executor& executor, Table& table, const RowUpdate& rows,
                     const Prepared& prepared) {
  const std::int64_t width = table.config().dimension;
  std::vector<Key> keys;
  std::vector<Row> all;
  table.entries(&keys, &all);
  table.preserve(executor, all.data(), static_cast<std::int64_t>(all.size()));
  Row most = 0;
  for (Row row : all) most = std::max(most, row);
  constexpr std::uint32_t kAbsent = 0xffffffffu;
  std::vector<std::uint32_t> place(all.empty() ? 0 : std::size_t{most} + 1, kAbsent);
  for (std::int64_t i = 0; i < prepared.count; ++i) {
    if (prepared.rows[i] != kNoRow) place[prepared.rows[i]] = static_cast<std::uint32_t>(i);
  }
  const std::vector<float> zero(width, 0.0f);
  std::vector<const float*> gradients(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::uint32_t p = place[all[i]];
    gradients[i] = p == kAbsent ? zero.data() : prepared.gradients + p * width;
  }
  executor.parallel_for(static_cast<std::int64_t>(all.size()), 20 + width,
                        [&](std::int64_t begin, std::int64_t end) {
                          update_range(rows, all.data(), gradients.data(), begin, end);
                        });
}

void update_locally(Executor& executor, const RowUpdate& rows, const Prepared& prepared) {
  const std::int64_t width = rows.table->config().dimension;
  std::vector<const float*> gradients(prepared.count);
  for (std::int64_t i = 0; i < prepared.count; ++i) gradients[i] = prepared.gradients + i * width;
  executor.parallel_for(prepared.count, 20 + width, [&](std::int64_t begin, std::int64_t end) {
    update_range(rows, prepared.rows.data(), gradients.data(), begin, end);
  });
}

}  // namespace

Status update(Executor& executor, std::vector<TableUpdate>& updates, std::int64_t step,
              float scale) {
  // Everything that can fail comes first, for all tables.
  std::vector<Prepared> prepared(updates.size());
  for (std::size_t i = 0; i < updates.size(); ++i) {
    TableUpdate& u = updates[i];
    SOK_RETURN_IF_ERROR(check_hyper(*u.optimizer, static_cast<std::int64_t>(u.hyper.size())));
    SOK_RETURN_IF_ERROR(u.table->check_range(u.keys, u.count));
    std::vector<PlaneSpec> planes = u.optimizer->planes(u.table->config().dimension, u.hyper);
    if (u.reach == Reach::kLazyGlobal) {
      SOK_RETURN_IF_ERROR(check_catch_up(*u.optimizer, u.hyper.data()));
      for (PlaneSpec& plane : lag_planes()) planes.push_back(std::move(plane));
    }
    SOK_RETURN_IF_ERROR(u.table->attach_planes(planes));
    SOK_RETURN_IF_ERROR(merge_keys(executor, u, &prepared[i]));
    SOK_RETURN_IF_ERROR(u.table->reserve(executor, {{prepared[i].keys, prepared[i].count}}));
  }
  for (std::size_t i = 0; i < updates.size(); ++i) {
    const TableUpdate& u = updates[i];
    const bool lazy = u.reach == Reach::kLazyGlobal;
    change_rule(executor, *u.table, lazy ? u.optimizer : nullptr, u.hyper.data());
    find_rows(executor, u.table, &prepared[i]);
    const RowUpdate rows = RowUpdate::of(*u.table, *u.optimizer, u.hyper, step, scale);
    if (u.reach == Reach::kGlobal) {
      update_globally(executor, *u.table, rows, prepared[i]);
      continue;
    }
    u.table->preserve(executor, prepared[i].rows.data(), prepared[i].count);
    if (lazy) catch_up(executor, *u.table, prepared[i].rows.data(), prepared[i].count);
    update_locally(executor, rows, prepared[i]);
    if (lazy) {
      count_step(executor, *u.table, u.hyper.data(), prepared[i].rows.data(), prepared[i].count);
    }
  }
  // What the lookup of these ids found has had its use.
  for (const TableUpdate& u : updates) u.table->keep(nullptr);
  return {};
}

}  // namespace sok::cpu
