// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cc_ops/cpu/catch_up.h"
#include "cc_ops/cpu/stages.h"
#include "cc_ops/cpu/update_rows.h"

namespace sok::cpu {
namespace {

std::vector<std::unique_ptr<Merge>> merge_all(Executor& executor,
                                              const std::vector<MergeUpdate>& updates) {
  std::vector<std::unique_ptr<Merge>> merges(updates.size());
  std::vector<std::int64_t> ids;
  for (const MergeUpdate& update : updates) {
    ids.push_back(0);
    for (const MergeFeature& feature : update.features) ids.back() += feature.bags.ids_count();
  }
  for_each_table(executor, ids, [&](std::size_t i, Executor& by) {
    const MergeUpdate& u = updates[i];
    merges[i] = std::make_unique<Merge>(by, *u.table, u.features, u.table->config().dimension);
  });
  return merges;
}

// Updates the rows of a part's keys, after finding them where the lookup has not done that. They
// belong to no other part, so that a new row is complete here when it is read.
void update_part(const RowUpdate& update, Table* table, const Merge& merge,
                 const Grouping::Part& part) {
  const std::int64_t width = table->config().dimension, count = part.count();
  std::vector<float> scratch(kRowsAhead * width);
  std::vector<Row> found;
  const Row* rows = part.rows.data();
  if (!merge.grouping().kept()) {
    found.resize(part.keys.size());
    table->find_or_insert_distinct(part.keys.data(), count, found.data());
    rows = found.data();
  }
  prefetch_rows(update, rows, std::min(kRowsAhead, count));
  for (std::int64_t begin = 0; begin < count; begin += kRowsAhead) {
    const std::int64_t n = std::min(kRowsAhead, count - begin);
    const std::int64_t ahead = std::min(begin + 2 * kRowsAhead, count);
    if (ahead > begin + n) prefetch_rows(update, rows + begin + n, ahead - begin - n);
    const float* gradients[kRowsAhead];
    for (std::int64_t i = 0; i < n; ++i) {
      gradients[i] = merge.sum(part, begin + i, scratch.data() + i * width);
    }
    update_rows(update, rows + begin, gradients, n);
  }
}

// For snapshots: the rows that are there already, before any is written.
void preserve(Executor& executor, Table* table, const Merge& merge) {
  if (!table->has_snapshots()) return;
  std::vector<Row> rows;
  for (const Grouping::Part& part : merge.grouping().parts()) {
    rows.resize(part.keys.size());
    table->find(part.keys.data(), part.count(), rows.data());
    table->preserve(executor, rows.data(), part.count());
  }
}

struct Piece {
  std::size_t update;
  const Grouping::Part* part;
};

}  // namespace

Status merge_update(Executor& executor, std::vector<MergeUpdate>& updates, std::int64_t step,
                    float scale) {
  // Everything that can fail comes first, for all tables.
  for (const MergeUpdate& u : updates) {
    SOK_RETURN_IF_ERROR(check_hyper(*u.optimizer, static_cast<std::int64_t>(u.hyper.size())));
    SOK_RETURN_IF_ERROR(
        u.table->attach_planes(u.optimizer->planes(u.table->config().dimension, u.hyper)));
  }
  const std::vector<std::unique_ptr<Merge>> merges = merge_all(executor, updates);
  std::vector<Piece> pieces;
  std::int64_t cost = 0;
  for (std::size_t i = 0; i < updates.size(); ++i) {
    const Grouping& grouping = merges[i]->grouping();
    SOK_RETURN_IF_ERROR(grouping.check());
    for (const Grouping::Part& part : grouping.parts()) pieces.push_back({i, &part});
    cost += grouping.count() * (50 + updates[i].table->config().dimension);
    if (!grouping.kept()) {
      SOK_RETURN_IF_ERROR(updates[i].table->reserve(executor, grouping.keys()));
    }
  }
  std::vector<RowUpdate> rows;
  for (std::size_t i = 0; i < updates.size(); ++i) {
    const MergeUpdate& u = updates[i];
    change_rule(executor, *u.table, nullptr, u.hyper.data());
    preserve(executor, u.table, *merges[i]);
    rows.push_back(RowUpdate::of(*u.table, *u.optimizer, u.hyper, step, scale));
  }
  std::vector<Table*> tables;
  for (const MergeUpdate& u : updates) tables.push_back(u.table);
  const Insertions insertions(std::move(tables));
  const auto count = static_cast<std::int64_t>(pieces.size());
  executor.parallel_for(count, cost / std::max<std::int64_t>(1, count),
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t p = begin; p < end; ++p) {
                            const std::size_t i = pieces[p].update;
                            update_part(rows[i], updates[i].table, *merges[i], *pieces[p].part);
                          }
                        });
  for (const MergeUpdate& u : updates) u.table->keep(nullptr);
  return {};
}

}  // namespace sok::cpu
