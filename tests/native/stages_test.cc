// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Lookup, merge and update of random batches, against plain loops in double.
#include <cmath>

#include "tests/native/batch.h"

namespace sok::cpu {
namespace {

using Vector = std::vector<double>;

constexpr Combiner kCombiners[] = {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn};
constexpr std::int64_t kWidths[] = {1, 3, 8, 17, 33, 130};

TEST(LookupTest, FollowsAPlainLoop) {
  for (const std::int64_t width : kWidths) {
    Seeded random(static_cast<std::uint64_t>(width));
    const Batch batch(random, 60, width, 40);
    for (const Combiner combiner : kCombiners) {
      for (const bool weighted : {false, true}) {
        ThreadExecutor executor(2);
        const auto table = make_table(config_of(width));
        std::vector<float> out(60 * width, NAN);
        LookupFeature feature;
        feature.table = table.get();
        feature.bags = batch.bags(combiner, weighted);
        feature.output = {RowType::kFloat32, out.data()};
        ASSERT_TRUE(lookup(executor, {feature}, true).ok());
        for (std::int64_t bag = 0; bag < 60; ++bag) {
          const double scale = batch.scale(bag, combiner, weighted);
          for (std::int64_t c = 0; c < width; ++c) {
            double sum = 0;
            for (std::int64_t i = batch.splits[bag]; i < batch.splits[bag + 1]; ++i) {
              sum += (weighted ? double{batch.weights[i]} : 1.0) *
                     table->config().initializer.value(batch.ids[i], static_cast<std::uint32_t>(c));
            }
            ASSERT_NEAR(out[bag * width + c], sum * scale, 4e-6 * (1 + std::abs(scale)))
                << "bag " << bag << " column " << c << " width " << width;
          }
        }
      }
    }
  }
}

TEST(MergeTest, FollowsAPlainLoop) {
  for (const std::int64_t width : kWidths) {
    Seeded random(100 + static_cast<std::uint64_t>(width));
    const Batch batch(random, 3000, width, 700);
    for (const Combiner combiner : kCombiners) {
      for (const int threads : {1, 3}) {
        ThreadExecutor executor(threads);
        const auto table = make_table(config_of(width));
        MergeFeature feature;
        feature.bags = batch.bags(combiner, true);
        feature.gradient = {RowType::kFloat32, const_cast<float*>(batch.gradients.data())};
        Merge merge(executor, *table, {feature}, width);
        std::vector<Key> keys(merge.count());
        std::vector<float> merged(merge.count() * width, NAN);
        merge.write(executor, keys.data(), merged.data());

        std::map<Key, Vector> expected;
        for (std::int64_t bag = 0; bag < batch.bag_count(); ++bag) {
          const double scale = batch.scale(bag, combiner, true);
          for (std::int64_t i = batch.splits[bag]; i < batch.splits[bag + 1]; ++i) {
            Vector& sum = expected.try_emplace(batch.ids[i], width, 0.0).first->second;
            const double weighted = scale * double{batch.weights[i]};
            for (std::int64_t c = 0; c < width; ++c) {
              sum[c] += weighted * batch.gradients[bag * width + c];
            }
          }
        }
        ASSERT_EQ(keys.size(), expected.size());
        for (std::size_t k = 0; k < keys.size(); ++k) {
          ASSERT_EQ(expected.count(keys[k]), 1u) << keys[k];
          for (std::int64_t c = 0; c < width; ++c) {
            ASSERT_NEAR(merged[k * width + c], expected[keys[k]][c], 4e-5) << keys[k];
          }
          expected.erase(keys[k]);  // a second time would fail above
        }
      }
    }
  }
}

TEST(MergeTest, AZeroDivisorGivesZeroGradientsEvenOfInfinity) {
  const std::vector<Key> ids = {1, 3};
  const std::vector<float> weights = {1.0f, -1.0f};
  std::vector<float> gradient = {INFINITY, NAN};
  ThreadExecutor executor(1);
  const auto table = make_table(config_of(2));
  MergeFeature feature;
  feature.bags.ids = ids.data();
  feature.bags.weights = weights.data();
  feature.bags.bags = 1;
  feature.bags.hotness = 2;
  feature.bags.combiner = Combiner::kMean;
  feature.gradient = {RowType::kFloat32, gradient.data()};
  Merge merge(executor, *table, {feature}, 2);
  std::vector<Key> keys(merge.count());
  std::vector<float> merged(merge.count() * 2, 5.0f);
  merge.write(executor, keys.data(), merged.data());
  EXPECT_EQ(keys, ids);
  EXPECT_EQ(merged, (std::vector<float>{0, 0, 0, 0}));
}

// Equal keys are summed, then each row gets one step of Adagrad.
TEST(UpdateTest, MergesAndFollowsAdagrad) {
  for (const std::int64_t width : kWidths) {
    Seeded random(200 + static_cast<std::uint64_t>(width));
    const auto table = make_table(config_of(width));
    std::map<Key, Vector> weight, accumulator;
    for (int step = 1; step <= 3; ++step) {
      std::vector<Key> keys(500);
      std::vector<float> gradients(500 * width);
      for (Key& key : keys) key = static_cast<Key>(random.below(300));
      for (float& g : gradients) g = Batch::number(random);
      std::map<Key, Vector> summed;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        Vector& sum = summed.try_emplace(keys[i], width, 0.0).first->second;
        for (std::int64_t c = 0; c < width; ++c) sum[c] += double{gradients[i * width + c]};
      }
      for (const auto& [key, g] : summed) {
        Vector& w = weight.try_emplace(key, width, 0.0).first->second;
        const bool fresh = accumulator.count(key) == 0;
        Vector& a = accumulator.try_emplace(key, width, 0.1).first->second;
        for (std::int64_t c = 0; c < width; ++c) {
          if (fresh) w[c] = table->config().initializer.value(key, static_cast<std::uint32_t>(c));
          const double scaled = 0.5 * g[c];
          a[c] += scaled * scaled;
          w[c] -= 0.1 * scaled / std::sqrt(a[c] + 1e-7);
        }
      }
      TableUpdate update_of = make_update(
          *table, "adagrad",
          {{"learning_rate", 0.1f}, {"epsilon", 1e-7f}, {"initial_accumulator_value", 0.1f}});
      update_of.keys = keys.data();
      update_of.gradients = gradients.data();
      update_of.count = 500;
      std::vector<TableUpdate> updates = {update_of};
      ThreadExecutor executor(2);
      const Status status = update(executor, updates, step, 0.5f);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    const std::map<Key, Row> found = contents(*table);
    ASSERT_EQ(found.size(), weight.size());
    for (const auto& [key, row] : found) {
      for (std::int64_t c = 0; c < width; ++c) {
        ASSERT_NEAR(table->plane<float>(0).row(row)[c], weight[key][c], 2e-5) << key;
        ASSERT_NEAR(table->plane<float>(1).row(row)[c] / accumulator[key][c], 1.0, 1e-5) << key;
      }
    }
  }
}

TEST(UpdateTest, AnUnknownOptimizerIsNamedWithTheKnownOnes) {
  const OptimizerSpec* spec = nullptr;
  const Status status = find_optimizer("sdg", &spec);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("'sdg'"), std::string::npos);
  EXPECT_NE(status.message().find("sgd, momentum, adagrad"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace sok::cpu
