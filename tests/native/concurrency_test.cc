// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Many threads at once: what the thread sanitizer looks at.
#include <algorithm>
#include <set>

#include "tests/native/testing.h"

namespace sok::cpu {
namespace {

constexpr int kThreads = 4;

class ConcurrencyTest : public EveryHash {};
SOK_INSTANTIATE_FOR_EVERY_HASH(ConcurrencyTest);

// Every thread walks the same keys in an order of its own: each insertion is contested.
TEST_P(ConcurrencyTest, EqualKeysOfAllThreadsGetOneRow) {
  const std::int64_t count = sized(8000);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Seeded random(seed);
    const auto table = make_table(config(5));
    std::vector<Key> keys;
    for (int thread = 0; thread < kThreads; ++thread) {
      std::vector<Key> own(count);
      for (std::int64_t i = 0; i < count; ++i) own[i] = i * 3 - count;
      std::shuffle(own.begin(), own.end(), random.generator);
      keys.insert(keys.end(), own.begin(), own.end());
    }
    const std::vector<Row> rows = insert(*table, keys, kThreads);
    const std::map<Key, Row> found = contents(*table);
    ASSERT_EQ(static_cast<std::int64_t>(found.size()), count);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(rows[i], found.at(keys[i])) << "key " << keys[i];
      for (std::uint32_t c = 0; c < 5; ++c) {
        ASSERT_EQ(table->plane<float>(0).row(rows[i])[c],
                  table->config().initializer.value(keys[i], c));
      }
    }
  }
}

// From some thousand groups on an index grows by all threads, each a range of the new one's groups.
TEST(GrowthTest, AnIndexGrowsByAllThreadsAndLosesNoKey) {
  Seeded random(3);
  const auto table = make_table(config_of(1));
  std::map<Key, Row> expected;
  for (int batch = 0; batch < 4; ++batch) {
    std::vector<Key> keys(100000);
    for (Key& key : keys) key = static_cast<Key>(random.generator());
    const std::vector<Row> rows = insert(*table, keys, kThreads);
    for (std::size_t i = 0; i < keys.size(); ++i) expected[keys[i]] = rows[i];
    ASSERT_EQ(contents(*table), expected);
  }
}

// Deleted slots and rows of erased keys are handed out again by several threads.
TEST_P(ConcurrencyTest, InsertionsReuseErasedRows) {
  Seeded random(11);
  const auto table = make_table(config(1));
  const auto count = static_cast<Key>(sized(4000));
  std::set<Key> expected;
  for (Key round = 0; round < 8; ++round) {
    std::vector<Key> keys(count);
    for (Key& key : keys)
      key = static_cast<Key>(random.below(static_cast<std::uint64_t>(2 * count)));
    insert(*table, keys, kThreads);
    expected.insert(keys.begin(), keys.end());
    std::vector<Key> erased;
    for (Key key : expected) {
      if (random.below(2) == 0) erased.push_back(key);
    }
    ASSERT_EQ(table->erase(erased.data(), static_cast<std::int64_t>(erased.size())),
              static_cast<std::int64_t>(erased.size()));
    for (Key key : erased) expected.erase(key);
    const std::map<Key, Row> found = contents(*table);
    ASSERT_EQ(found.size(), expected.size());
    for (Key key : expected) ASSERT_EQ(found.count(key), 1u);
    // No more rows than keys have lived at one time.
    for (const auto& [key, row] : found) ASSERT_LT(row, 2 * count + count);
  }
}

TEST_P(ConcurrencyTest, LookupAndUpdateDoNotDependOnThreads) {
  const std::int64_t bags = sized(4000), hotness = 6, width = 7;
  Seeded random(5);
  std::vector<Key> ids(bags * hotness);
  for (Key& id : ids) id = static_cast<Key>(random.below(static_cast<std::uint64_t>(bags)));
  std::vector<float> gradients(bags * width);
  for (float& g : gradients) g = static_cast<float>(random.below(2001)) / 1000.0f - 1.0f;

  std::vector<float> outputs[2];
  std::map<Key, std::vector<float>> rows[2];
  for (const int threads : {1, kThreads}) {
    const int world = threads == 1 ? 0 : 1;
    ThreadExecutor executor(threads);
    const auto table = make_table(config(width));
    Bags batch;
    batch.ids = ids.data();
    batch.bags = bags;
    batch.hotness = hotness;
    batch.combiner = Combiner::kMean;
    outputs[world].resize(bags * width);
    LookupFeature feature;
    feature.table = table.get();
    feature.bags = batch;
    feature.output = {RowType::kFloat32, outputs[world].data()};
    ASSERT_TRUE(lookup(executor, {feature}, true).ok());

    MergeFeature merged_feature;
    merged_feature.bags = batch;
    merged_feature.gradient = {RowType::kFloat32, gradients.data()};
    Merge merge(executor, *table, {merged_feature}, width);
    std::vector<Key> keys(merge.count());
    std::vector<float> merged(merge.count() * width);
    merge.write(executor, keys.data(), merged.data());
    TableUpdate step = make_update(*table, "adagrad",
                                   {{"learning_rate", 0.1f}, {"initial_accumulator_value", 0.1f}});
    step.keys = keys.data();
    step.gradients = merged.data();
    step.count = merge.count();
    step.unique = true;
    std::vector<TableUpdate> steps = {step};
    const Status status = update(executor, steps, 1, 1.0f);
    ASSERT_TRUE(status.ok()) << status.message();
    for (const auto& [key, row] : contents(*table)) {
      const float* values = table->plane<float>(0).row(row);
      rows[world][key].assign(values, values + width);
    }
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(rows[0], rows[1]);
}

}  // namespace
}  // namespace sok::cpu
