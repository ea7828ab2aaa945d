// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// A training lookup finds the rows of its ids, and the update that follows uses them: the result is
// that of an update that finds them itself, whatever happens to the table in between.
#include <algorithm>
#include <functional>

#include "tests/native/batch.h"

namespace sok::cpu {
namespace {

using Rows = std::map<Key, std::vector<float>>;

constexpr std::int64_t kWidth = 6;
constexpr std::int64_t kBagCount = 4000;

// Two features of one table.
struct Ids {
  Batch first, second;

  explicit Ids(std::uint64_t seed) : Ids(Seeded(seed)) {}
  explicit Ids(Seeded random)
      : first(random, kBagCount, kWidth, 3000), second(random, kBagCount, kWidth, 200000) {}

  std::vector<Bags> bags() const {
    return {first.bags(Combiner::kMean, true), second.bags(Combiner::kSum, false)};
  }
};

// Nobody writes to the ids while a test runs.
std::shared_ptr<const void> memory_of(const Ids& ids) {
  return {&ids, [](const void*) {}};
}

void look_up(Executor& executor, Table& table, const Ids& ids, bool keep) {
  std::vector<float> outputs(2 * kBagCount * kWidth);
  std::vector<LookupFeature> features;
  for (const Bags& bags : ids.bags()) {
    void* output = outputs.data() + static_cast<std::int64_t>(features.size()) * kBagCount * kWidth;
    features.push_back({&table, bags, {RowType::kFloat32, output}, 0});
  }
  const Status status = lookup(executor, features, true, keep ? memory_of(ids) : nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
}

void train(Executor& executor, Table& table, Ids& ids) {
  const TableUpdate step =
      make_update(table, "adagrad", {{"learning_rate", 0.1f}, {"initial_accumulator_value", 0.1f}});
  const std::vector<Bags> bags = ids.bags();
  std::vector<MergeUpdate> updates = {
      {&table,
       step.optimizer,
       step.hyper,
       {{bags[0], {RowType::kFloat32, ids.first.gradients.data()}},
        {bags[1], {RowType::kFloat32, ids.second.gradients.data()}}}}};
  const Status status = merge_update(executor, updates, 1, 1.0f);
  ASSERT_TRUE(status.ok()) << status.message();
}

Rows rows_of(const Table& table) {
  Rows result;
  for (const auto& [key, row] : contents(table)) {
    std::vector<float>& all = result[key];
    for (int i = 0; i < table.plane_count(); ++i) {
      const float* values = table.plane<float>(i).row(row);
      all.insert(all.end(), values, values + kWidth);
    }
  }
  return result;
}

// The same steps on a table that keeps nothing, with one thread, and on one that does.
void expect_same(const std::function<void(Executor&, Table&, bool keep)>& steps) {
  ThreadExecutor alone(1);
  const auto plain = make_table(config_of(kWidth));
  steps(alone, *plain, false);
  const Rows expected = rows_of(*plain);
  EXPECT_FALSE(expected.empty());
  for (const int threads : {1, 3}) {
    ThreadExecutor executor(threads);
    const auto table = make_table(config_of(kWidth));
    steps(executor, *table, true);
    EXPECT_EQ(rows_of(*table), expected);
  }
}

TEST(GroupingTest, AnUpdateUsesTheRowsThatTheLookupFound) {
  Ids ids(1), more(2);
  expect_same([&](Executor& executor, Table& table, bool keep) {
    for (Ids* batch : {&ids, &more, &ids}) {
      look_up(executor, table, *batch, keep);
      EXPECT_EQ(table.grouping() != nullptr, keep);
      train(executor, table, *batch);
      EXPECT_EQ(table.grouping(), nullptr);  // its memory is free
    }
  });
}

TEST(GroupingTest, AnUpdateOfOtherIdsFindsThem) {
  Ids ids(3), more(4);
  expect_same([&](Executor& executor, Table& table, bool keep) {
    look_up(executor, table, ids, keep);
    train(executor, table, more);
    train(executor, table, ids);
  });
}

TEST(GroupingTest, NoRowIsUsedAfterKeysAreForgotten) {
  Ids ids(5), more(6);
  expect_same([&](Executor& executor, Table& table, bool keep) {
    look_up(executor, table, ids, keep);
    std::vector<Key> erased(ids.first.ids.begin(), ids.first.ids.begin() + 500);
    table.erase(erased.data(), 500);
    EXPECT_EQ(table.grouping(), nullptr);
    // The rows of the erased keys now belong to these.
    insert(table, {-1, -2, -3, -4, -5});
    train(executor, table, ids);
    look_up(executor, table, more, keep);
    table.clear();
    EXPECT_EQ(table.grouping(), nullptr);
    train(executor, table, more);
  });
}

TEST(GroupingTest, TheTableMayGrowInBetween) {
  Ids ids(7);
  expect_same([&](Executor& executor, Table& table, bool keep) {
    look_up(executor, table, ids, keep);
    std::vector<Key> keys(100000);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = -1 - static_cast<Key>(i);
    insert(table, keys);
    train(executor, table, ids);
  });
}

TEST(GroupingTest, OnlyTheSameMemoryIsTheSameIds) {
  const Ids ids(8), equal(8);
  ThreadExecutor executor(2);
  const auto table = make_table(config_of(kWidth));
  look_up(executor, *table, ids, true);
  const std::shared_ptr<const Grouping> kept = table->grouping();
  ASSERT_NE(kept, nullptr);
  EXPECT_TRUE(kept->is_of(ids.bags()));
  EXPECT_FALSE(kept->is_of(equal.bags()));
  std::vector<Bags> bags = ids.bags();
  std::swap(bags[0], bags[1]);
  EXPECT_FALSE(kept->is_of(bags));
  bags = ids.bags();
  bags[0].combiner = Combiner::kSqrtn;
  EXPECT_FALSE(kept->is_of(bags));
  bags = ids.bags();
  bags.pop_back();
  EXPECT_FALSE(kept->is_of(bags));
  EXPECT_EQ(grouping_of(executor, *table, ids.bags()), kept);
  EXPECT_NE(grouping_of(executor, *table, equal.bags()), kept);
}

TEST(GroupingTest, MoreIdsThanItsNumbersCountAreRefused) {
  ThreadExecutor executor(1);
  const auto table = make_table(config_of(kWidth));
  Bags bags;
  bags.bags = std::int64_t{1} << 32;  // never read
  const Status status = lookup(executor, {{table.get(), bags, {}, 0}}, true);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("4294967296 bags or ids in one call, at most 4294967295"),
            std::string::npos)
      << status.message();
  EXPECT_EQ(table->size(), 0);
}

}  // namespace
}  // namespace sok::cpu
