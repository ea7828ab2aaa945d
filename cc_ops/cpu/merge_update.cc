// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cc_ops/cpu/catch_up.h"
#include "cc_ops/cpu/stages.h"
#include "cc_ops/cpu/update_rows.h"

namespace sok::cpu {
namespace {

// A table with fewer ids is one thread's: several such tables share the threads.
constexpr std::int64_t kSmallBatch = 16384;

std::int64_t ids_of(const MergeUpdate& update) {
  std::int64_t ids = 0;
  for (const MergeFeature& feature : update.features) ids += feature.bags.ids_count();
  return ids;
}

std::vector<std::unique_ptr<Merge>> merge_all(Executor& executor,
                                              const std::vector<MergeUpdate>& updates) {
  std::vector<std::unique_ptr<Merge>> merges(updates.size());
  const auto merge = [&](std::size_t i, Executor& by) {
    const MergeUpdate& u = updates[i];
    merges[i] = std::make_unique<Merge>(by, *u.table, u.features, u.table->config().dimension);
  };
  std::vector<std::size_t> small;
  std::int64_t ids = 0;
  for (std::size_t i = 0; i < updates.size(); ++i) {
    if (ids_of(updates[i]) < kSmallBatch) {
      small.push_back(i);
      ids += ids_of(updates[i]);
    } else {
      merge(i, executor);
    }
  }
  const auto count = static_cast<std::int64_t>(small.size());
  executor.parallel_for(count, ids * 16 / std::max<std::int64_t>(1, count) + 1000,
                        [&](std::int64_t begin, std::int64_t end) {
                          ThreadExecutor alone(1);
                          for (std::int64_t i = begin; i < end; ++i) merge(small[i], alone);
                        });
  return merges;
}

// Finds or inserts the keys of a part, and updates their rows. Its keys belong to no other part, so that
// a new row is complete here when it is read.
void update_part(const RowUpdate& update, Table* table, const Merge& merge,
                 const Merge::Part& part) {
  const std::int64_t width = table->config().dimension, count = part.count();
  std::vector<float> scratch(kRowsAhead * width);
  std::vector<Row> rows(count);
  table->find_or_insert(part.keys.data(), count, rows.data());
  prefetch_rows(update, rows.data(), std::min(kRowsAhead, count));
  for (std::int64_t begin = 0; begin < count; begin += kRowsAhead) {
    const std::int64_t n = std::min(kRowsAhead, count - begin);
    const std::int64_t ahead = std::min(begin + 2 * kRowsAhead, count);
    if (ahead > begin + n) prefetch_rows(update, rows.data() + begin + n, ahead - begin - n);
    const float* gradients[kRowsAhead];
    for (std::int64_t i = 0; i < n; ++i) {
      gradients[i] = merge.sum(part, begin + i, scratch.data() + i * width);
    }
    update_rows(update, rows.data() + begin, gradients, n);
  }
}

// For snapshots: the rows that are there already, before any is written.
void preserve(Executor& executor, Table* table, const Merge& merge) {
  if (!table->has_snapshots()) return;
  std::vector<Row> rows;
  for (const Merge::Part& part : merge.parts()) {
    rows.resize(part.keys.size());
    table->find(part.keys.data(), part.count(), rows.data());
    table->preserve(executor, rows.data(), part.count());
  }
}

struct Piece {
  std::size_t update;
  const Merge::Part* part;
};

}  // namespace

Status merge_update(Executor& executor, std::vector<MergeUpdate>& updates, std::int64_t step,
                    float scale) {
  // Everything that can fail comes first, for all tables.
  for (const MergeUpdate& u : updates) {
    SOK_RETURN_IF_ERROR(
        check_hyper(*u.optimizer, static_cast<std::int64_t>(u.hyper.size())));
    SOK_RETURN_IF_ERROR(
        u.table->attach_planes(u.optimizer->planes(u.table->config().dimension, u.hyper)));
  }
  const std::vector<std::unique_ptr<Merge>> merges = merge_all(executor, updates);
  std::vector<Piece> pieces;
  std::int64_t cost = 0;
  for (std::size_t i = 0; i < updates.size(); ++i) {
    SOK_RETURN_IF_ERROR(merges[i]->check());
    std::vector<IdSpan> keys;
    for (const Merge::Part& part : merges[i]->parts()) {
      keys.push_back({part.keys.data(), part.count()});
      pieces.push_back({i, &part});
    }
    cost += merges[i]->count() * (50 + updates[i].table->config().dimension);
    SOK_RETURN_IF_ERROR(updates[i].table->reserve(executor, keys));
  }
  std::vector<RowUpdate> rows;
  for (std::size_t i = 0; i < updates.size(); ++i) {
    const MergeUpdate& u = updates[i];
    change_rule(executor, *u.table, nullptr, u.hyper.data());
    preserve(executor, u.table, *merges[i]);
    rows.push_back(RowUpdate::of(*u.table, *u.optimizer, u.hyper, step, scale));
  }
  const auto count = static_cast<std::int64_t>(pieces.size());
  executor.parallel_for(count, cost / std::max<std::int64_t>(1, count),
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t p = begin; p < end; ++p) {
                            const std::size_t i = pieces[p].update;
                            update_part(rows[i], updates[i].table, *merges[i], *pieces[p].part);
                          }
                        });
  for (const MergeUpdate& u : updates) u.table->settle();
  return {};
}

}  // namespace sok::cpu
