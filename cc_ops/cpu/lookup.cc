// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>

#include "cc_ops/cpu/bag_reader.h"
#include "cc_ops/cpu/catch_up.h"
#include "cc_ops/cpu/bag_task.h"
#include "cc_ops/cpu/stages.h"

namespace sok::cpu {
namespace {

std::vector<BagTask> split(const std::vector<LookupFeature>& features) {
  std::vector<BagTask> tasks;
  for (std::size_t f = 0; f < features.size(); ++f) split_bags(f, features[f].bags, &tasks);
  return tasks;
}

// Combines the bags of a task; rows[i] is the row of id first_id + i.
void combine(const LookupFeature& feature, const BagTask& task, const Row* rows) {
  with_row_type(feature.table->config().row_type, [&](auto row_type) {
    BagReader<decltype(row_type)> reader(*feature.table, feature.bags, feature.max_norm,
                                         feature.bags.begin(task.first_bag),
                                         feature.bags.end(task.last_bag - 1), rows);
    const std::int64_t width = feature.table->config().dimension;
    with_row_type(feature.output.type, [&](auto output_type) {
      using O = decltype(output_type);
      O* out = static_cast<O*>(feature.output.data) + task.first_bag * width;
      for (std::int64_t bag = task.first_bag; bag < task.last_bag; ++bag, out += width) {
        convert(reader.combine(bag, direct(out)), width, out);
      }
    });
  });
}

}  // namespace

Status lookup(Executor& executor, const std::vector<LookupFeature>& features, bool insert) {
  std::map<Table*, std::vector<IdSpan>> spans;
  std::int64_t ids = 0, width = 0;
  for (const LookupFeature& feature : features) {
    const std::int64_t count = feature.bags.ids_count();
    SOK_RETURN_IF_ERROR(feature.table->check_range(feature.bags.ids, count));
    spans[feature.table].push_back({feature.bags.ids, count});
    ids += count;
    width = std::max(width, feature.table->config().dimension);
  }
  for (auto& [table, table_spans] : spans) catch_up(executor, *table, table_spans);
  const std::vector<BagTask> tasks = split(features);
  const auto task_count = static_cast<std::int64_t>(tasks.size());
  const std::int64_t find_cost = ids / std::max<std::int64_t>(1, task_count) * 30;
  const std::int64_t combine_cost =
      ids / std::max<std::int64_t>(1, task_count) * (10 + width / 2) + 1000;

  if (!insert) {
    executor.parallel_for(task_count, find_cost + combine_cost,
                          [&](std::int64_t begin, std::int64_t end) {
      std::vector<Row> rows;
      for (std::int64_t t = begin; t < end; ++t) {
        const LookupFeature& feature = features[tasks[t].feature];
        const std::int64_t first = feature.bags.begin(tasks[t].first_bag);
        const std::int64_t count = feature.bags.end(tasks[t].last_bag - 1) - first;
        rows.resize(count);
        feature.table->find(feature.bags.ids + first, count, rows.data());
        combine(feature, tasks[t], rows.data());
      }
    });
    return {};
  }

  // Two passes: a row may be read only when whoever inserted it has filled it.
  for (auto& [table, table_spans] : spans) {
    SOK_RETURN_IF_ERROR(table->reserve(executor, table_spans));
  }
  std::vector<std::vector<Row>> rows(features.size());
  for (std::size_t f = 0; f < features.size(); ++f) rows[f].resize(features[f].bags.ids_count());
  executor.parallel_for(task_count, find_cost, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const LookupFeature& feature = features[tasks[t].feature];
      const std::int64_t first = feature.bags.begin(tasks[t].first_bag);
      feature.table->find_or_insert(feature.bags.ids + first,
                                    feature.bags.end(tasks[t].last_bag - 1) - first,
                                    rows[tasks[t].feature].data() + first);
    }
  });
  for (auto& [table, table_spans] : spans) table->settle();
  executor.parallel_for(task_count, combine_cost, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const LookupFeature& feature = features[tasks[t].feature];
      combine(feature, tasks[t],
              rows[tasks[t].feature].data() + feature.bags.begin(tasks[t].first_bag));
    }
  });
  return {};
}

}  // namespace sok::cpu
