// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Merge and update in one, against the two after each other: equal bit for bit.
#include <algorithm>
#include <utility>

#include "cc_ops/cpu/snapshot.h"
#include "cc_ops/cpu/vector_ops.h"
#include "tests/native/testing.h"

namespace sok::cpu {
namespace {

using Rows = std::map<Key, std::vector<float>>;

// Values and states by key.
Rows rows_of(const Table& table) {
  Rows result;
  for (const auto& [key, row] : contents(table)) {
    std::vector<float>& all = result[key];
    with_row_type(table.config().row_type, [&](auto type) {
      const auto plane = table.plane<decltype(type)>(0);
      all.resize(plane.width);
      convert(plane.row(row), plane.width, all.data());
    });
    for (int i = 1; i < table.plane_count(); ++i) {
      const PlaneRef<float> plane = table.plane<float>(i);
      all.insert(all.end(), plane.row(row), plane.row(row) + plane.width);
    }
  }
  return result;
}

// Two features of one table: bags of three with mean and float gradients, single ids with bfloat16
// ones.
struct TwoFeatures {
  static constexpr std::int64_t kBags = 5000, kHotness = 3;
  std::vector<Key> ids, single;
  std::vector<float> gradient, weights;
  std::vector<BFloat16> narrow;
  std::int64_t width;

  TwoFeatures(Seeded& random, std::int64_t width_) : width(width_) {
    for (std::int64_t i = 0; i < kBags * kHotness; ++i) {
      // Half of the ids are few, with many gradients each.
      const bool often = random.below(2) == 0;
      ids.push_back(static_cast<Key>(often ? random.below(20) : random.below(20000)));
      weights.push_back(static_cast<float>(random.below(5)) - 1.0f);
    }
    for (std::int64_t i = 0; i < kBags; ++i) single.push_back(static_cast<Key>(random.below(9000)));
    gradient.resize(kBags * width);
    for (float& g : gradient) g = static_cast<float>(random.below(4001)) / 1000.0f - 2.0f;
    narrow.resize(gradient.size());
    convert(gradient.data(), kBags * width, narrow.data());
  }
  std::vector<MergeFeature> features() {
    std::vector<MergeFeature> result(2);
    result[0].bags.ids = ids.data();
    result[0].bags.weights = weights.data();
    result[0].bags.bags = kBags;
    result[0].bags.hotness = kHotness;
    result[0].bags.combiner = Combiner::kMean;
    result[0].gradient = {RowType::kFloat32, gradient.data()};
    result[1].bags.ids = single.data();
    result[1].bags.bags = kBags;
    result[1].gradient = {RowType::kBFloat16, narrow.data()};
    return result;
  }
};

const std::map<std::string, float> kHyper = {
    {"learning_rate", 0.1f}, {"beta_1", 0.9f}, {"beta_2", 0.99f}, {"epsilon", 1e-7f}};

Rows after_two_stages(TableConfig config, TwoFeatures& batch, int threads) {
  ThreadExecutor executor(threads);
  const auto table = make_table(std::move(config));
  Merge merge(executor, *table, batch.features(), batch.width);
  std::vector<Key> keys(merge.count());
  std::vector<float> gradients(merge.count() * batch.width);
  merge.write(executor, keys.data(), gradients.data());
  std::vector<TableUpdate> updates = {make_update(*table, "adam", kHyper)};
  updates[0].keys = keys.data();
  updates[0].gradients = gradients.data();
  updates[0].count = merge.count();
  updates[0].unique = true;
  EXPECT_TRUE(update(executor, updates, 3, 0.5f).ok());
  return rows_of(*table);
}

MergeUpdate request(Table& table, std::vector<MergeFeature> features) {
  const TableUpdate step = make_update(table, "adam", kHyper);
  return {&table, step.optimizer, step.hyper, std::move(features)};
}

TEST(MergeUpdateTest, EqualsMergeThenUpdate) {
  for (const std::int64_t width : {1, 5, 16, 67}) {
    for (const RowType type : {RowType::kFloat32, RowType::kFloat16}) {
      Seeded random(300 + static_cast<std::uint64_t>(width));
      TwoFeatures batch(random, width);
      TableConfig config = config_of(width);
      config.row_type = type;
      const Rows expected = after_two_stages(config, batch, 1);
      for (const int threads : {1, 3}) {
        EXPECT_EQ(after_two_stages(config, batch, threads), expected);
        // A large table, and two small ones that share the threads.
        ThreadExecutor executor(threads);
        const auto large = make_table(config), first = make_table(config),
                   second = make_table(config);
        std::vector<MergeFeature> few = batch.features();
        few.erase(few.begin());
        std::vector<MergeUpdate> updates = {request(*large, batch.features()), request(*first, few),
                                            request(*second, few)};
        ASSERT_TRUE(merge_update(executor, updates, 3, 0.5f).ok());
        EXPECT_EQ(rows_of(*large), expected);
        EXPECT_EQ(rows_of(*first), rows_of(*second));
        const std::map<Key, Row> small = contents(*first);
        for (const Key key : batch.single) EXPECT_EQ(small.count(key), 1u);
      }
    }
  }
}

TEST(MergeUpdateTest, AnIdOutOfRangeChangesNoTable) {
  Seeded random(5);
  TwoFeatures batch(random, 4);
  TableConfig of_static = config_of(4);
  of_static.rows = 100;  // fewer than ids
  const auto hash = make_table(config_of(4)), fixed = make_table(of_static);
  ThreadExecutor executor(2);
  fixed->initialize_static(executor);
  std::vector<MergeUpdate> updates = {request(*hash, batch.features()),
                                      request(*fixed, batch.features())};
  const Status status = merge_update(executor, updates, 1, 1.0f);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("is out of range: the table has 100 rows"), std::string::npos)
      << status.message();
  EXPECT_EQ(hash->size(), 0);
  for (const auto& [key, row] : contents(*fixed)) {
    EXPECT_EQ(fixed->plane<float>(0).row(row)[0], first_value(*fixed, key));
  }
}

TEST(MergeUpdateTest, ASnapshotKeepsTheRowsOfItsMoment) {
  Seeded random(6);
  TwoFeatures batch(random, 4);
  ThreadExecutor executor(3);
  const auto table = make_table(config_of(4));
  std::vector<Key> known(batch.ids.begin(), batch.ids.begin() + 3000);
  insert(*table, known);
  Rows expected;
  for (const auto& [key, row] : contents(*table)) {
    const float* values = table->plane<float>(0).row(row);
    expected[key].assign(values, values + 4);
  }
  const auto snapshot = table->snapshot({0}, 0, 0);
  for (int step = 1; step <= 2; ++step) {
    std::vector<MergeUpdate> updates = {request(*table, batch.features())};
    ASSERT_TRUE(merge_update(executor, updates, step, 1.0f).ok());
  }
  std::vector<Key> keys;
  std::vector<Row> rows;
  snapshot->next(1 << 20, &keys, &rows);
  std::vector<float> values(rows.size() * 4);
  snapshot->read(executor, *table, 0, rows, values.data());
  Rows got;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    got[keys[i]].assign(values.begin() + i * 4, values.begin() + i * 4 + 4);
  }
  EXPECT_EQ(got, expected);
}

TEST(MergeUpdateTest, AnEmptyBatchChangesNothing) {
  const auto table = make_table(config_of(4));
  ThreadExecutor executor(2);
  MergeFeature none;
  none.gradient = {RowType::kFloat32, nullptr};
  std::vector<MergeUpdate> updates = {request(*table, {none})};
  ASSERT_TRUE(merge_update(executor, updates, 1, 1.0f).ok());
  EXPECT_EQ(table->size(), 0);
}

}  // namespace
}  // namespace sok::cpu
