// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Lazy updates of every row against those that reach every row at once.
#include "cc_ops/cpu/catch_up.h"

#include "tests/native/testing.h"

namespace sok::cpu {
namespace {

constexpr std::int64_t kWidth = 5, kIds = 40;
using Hyper = std::map<std::string, float>;

struct Rule {
  const char* name;
  Hyper hyper;
};

class CatchUpTest : public ::testing::TestWithParam<Rule> {};

TEST_P(CatchUpTest, RowsThatCatchUpAreThoseThatWereAlwaysThere) {
  Seeded random(7);
  const std::unique_ptr<Table> at_once = make_table(config_of(kWidth)),
                               lazy = make_table(config_of(kWidth));
  ThreadExecutor executor(2);
  for (int step = 1; step <= 30; ++step) {
    std::vector<Key> keys(kIds);
    std::vector<float> gradients(kIds * kWidth);
    // The range of the keys grows: some rows are new in each step, in both tables.
    for (Key& key : keys) key = static_cast<Key>(random.below(100 + 300 * step));
    for (float& g : gradients) g = static_cast<float>(random.below(2001)) / 1000.0f - 1.0f;
    for (const auto& [table, reach] :
         {std::pair{at_once.get(), Reach::kGlobal}, std::pair{lazy.get(), Reach::kLazyGlobal}}) {
      TableUpdate one = make_update(*table, GetParam().name, GetParam().hyper);
      one.reach = reach;
      one.keys = keys.data();
      one.gradients = gradients.data();
      one.count = step % 7 == 0 ? 0 : kIds;
      std::vector<TableUpdate> updates = {one};
      const Status status = update(executor, updates, step, 1.0f);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    EXPECT_TRUE(lags(*lazy));
    if (step % 5 == 0) catch_up(executor, *lazy, {{keys.data(), kIds}});
    if (step == 18) {
      lazy->erase(keys.data(), kIds);
      at_once->erase(keys.data(), kIds);
    }
  }
  catch_up(executor, *lazy);
  EXPECT_FALSE(lags(*lazy));
  const std::map<Key, Row> expected = contents(*at_once), found = contents(*lazy);
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [key, row] : found) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      ASSERT_NEAR(lazy->plane<float>(0).row(row)[c],
                  at_once->plane<float>(0).row(expected.at(key))[c], 2e-5)
          << key;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rules, CatchUpTest,
    ::testing::Values(
        Rule{"sgd", {{"learning_rate", 0.1f}, {"weight_decay", 0.2f}}},
        Rule{"momentum", {{"learning_rate", 0.1f}, {"momentum", 0.9f}}},
        Rule{"rmsprop_centered_momentum",
             {{"learning_rate", 0.01f}, {"rho", 0.9f}, {"epsilon", 1e-2f}, {"momentum", 0.7f}}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(CatchUpErrorTest, ARuleWithoutAClosedFormIsRefused) {
  const std::unique_ptr<Table> table = make_table(config_of(1));
  for (const Rule& rule :
       {Rule{"adam", {{"learning_rate", 0.1f}}},
        Rule{"momentum", {{"learning_rate", 0.1f}, {"momentum", 0.9f}, {"weight_decay", 0.1f}}}}) {
    std::vector<TableUpdate> updates = {make_update(*table, rule.name, rule.hyper)};
    updates[0].reach = Reach::kLazyGlobal;
    ThreadExecutor executor(1);
    const Status status = update(executor, updates, 1, 1.0f);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << rule.name;
    EXPECT_NE(status.message().find("no closed form"), std::string::npos) << status.message();
    EXPECT_EQ(table->plane_count(), 1);
  }
}

}  // namespace
}  // namespace sok::cpu
