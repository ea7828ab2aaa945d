// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>

#include "cc_ops/cpu/bag_reader.h"
#include "cc_ops/cpu/bag_task.h"
#include "cc_ops/cpu/catch_up.h"
#include "cc_ops/cpu/grouping.h"
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

// The features of a call that read one hash table.
struct Training {
  Table* table;
  std::vector<std::size_t> features;
  std::shared_ptr<Grouping> grouping;
};

// Gives every id of a hash table a row: rows[feature][id].
Status insert_ids(Executor& executor, const std::vector<LookupFeature>& features,
                  const std::shared_ptr<const void>& memory,
                  std::vector<std::unique_ptr<Row[]>>* rows) {
  std::vector<Training> tables;
  std::map<Table*, std::size_t> number;
  std::vector<std::int64_t> ids;
  for (std::size_t f = 0; f < features.size(); ++f) {
    Table* table = features[f].table;
    if (table->config().is_static()) continue;
    if (number.emplace(table, tables.size()).second) {
      tables.push_back({table, {}, nullptr});
      ids.push_back(0);
    }
    const std::int64_t count = features[f].bags.ids_count();
    tables[number[table]].features.push_back(f);
    ids[number[table]] += count;
    (*rows)[f].reset(new Row[count]);
  }
  for_each_table(executor, ids, [&](std::size_t t, Executor& by) {
    std::vector<Bags> bags;
    for (std::size_t f : tables[t].features) bags.push_back(features[f].bags);
    tables[t].grouping = std::make_shared<Grouping>(by, *tables[t].table, std::move(bags));
  });
  struct Piece {
    std::size_t table, part;
  };
  std::vector<Piece> pieces;
  std::int64_t keys = 0;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const Grouping& grouping = *tables[t].grouping;
    SOK_RETURN_IF_ERROR(grouping.check());
    SOK_RETURN_IF_ERROR(tables[t].table->reserve(executor, grouping.keys()));
    for (std::size_t p = 0; p < grouping.parts().size(); ++p) pieces.push_back({t, p});
    keys += grouping.count();
  }
  const auto count = static_cast<std::int64_t>(pieces.size());
  {
    std::vector<Table*> touched;
    for (const Training& t : tables) touched.push_back(t.table);
    const Insertions insertions(std::move(touched));
    executor.parallel_for(count, keys * 40 / std::max<std::int64_t>(1, count),
                          [&](std::int64_t begin, std::int64_t end) {
                            std::vector<Row*> rows_of_features;
                            for (std::int64_t i = begin; i < end; ++i) {
                              const Training& t = tables[pieces[i].table];
                              rows_of_features.clear();
                              for (std::size_t f : t.features)
                                rows_of_features.push_back((*rows)[f].get());
                              t.grouping->find_or_insert(pieces[i].part, t.table,
                                                         rows_of_features.data());
                            }
                          });
  }
  for (Training& t : tables) {
    t.grouping->keep(memory);
    t.table->keep(memory == nullptr ? nullptr : std::move(t.grouping));
  }
  return {};
}

}  // namespace

Status lookup(Executor& executor, const std::vector<LookupFeature>& features, bool insert,
              const std::shared_ptr<const void>& memory) {
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
  // Before any is read: a row may be read only when whoever inserted it has filled it.
  std::vector<std::unique_ptr<Row[]>> inserted(features.size());
  if (insert) SOK_RETURN_IF_ERROR(insert_ids(executor, features, memory, &inserted));

  const std::vector<BagTask> tasks = split(features);
  const auto task_count = static_cast<std::int64_t>(tasks.size());
  const std::int64_t cost =
      ids / std::max<std::int64_t>(1, task_count) * ((insert ? 10 : 40) + width / 2) + 1000;
  executor.parallel_for(task_count, cost, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Row> found;
    for (std::int64_t t = begin; t < end; ++t) {
      const LookupFeature& feature = features[tasks[t].feature];
      const std::int64_t first = feature.bags.begin(tasks[t].first_bag);
      const Row* rows = inserted[tasks[t].feature].get();
      if (rows != nullptr) {
        rows += first;
      } else {
        const std::int64_t count = feature.bags.end(tasks[t].last_bag - 1) - first;
        found.resize(count);
        feature.table->find(feature.bags.ids + first, count, found.data());
        rows = found.data();
      }
      combine(feature, tasks[t], rows);
    }
  });
  return {};
}

}  // namespace sok::cpu
