// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Lookup and merge of random batches on a GPU, against the CPU's.
#include "tests/native/gpu/table_pair.h"

namespace sok::cuda {
namespace {

TEST(DeviceLookupTest, FollowsTheCpu) {
  for (const std::int64_t width : widths()) {
    Seeded random(run_seed() + static_cast<std::uint64_t>(width));
    const Batch batch(random, scaled(600, 40), width, 90);
    for (const bool is_static : {false, true}) {
      for (const Combiner combiner : kCombiners) {
        for (const bool weighted : {false, true}) {
          TableConfig config = config_of(width);
          if (is_static) config.rows = 90;
          Pair pair(config);
          std::vector<float> expected(batch.bag_count() * width);
          cpu::LookupFeature feature;
          feature.table = pair.host.get();
          feature.bags = batch.bags(combiner, weighted);
          feature.output = {RowType::kFloat32, expected.data()};
          expect_ok(cpu::lookup(pair.executor, {feature}, true));

          const DeviceBatch on_device(pair.context, batch);
          const Buffer out = pair.context.allocate(expected.size() * sizeof(float));
          LookupFeature device_feature;
          device_feature.table = pair.device.get();
          device_feature.bags = on_device.bags(combiner, weighted);
          device_feature.output = {RowType::kFloat32, out.data};
          expect_ok(lookup(pair.context, {device_feature}, true));
          const auto found = pair.context.download<float>(out, expected.size());
          for (std::size_t i = 0; i < found.size(); ++i) {
            ASSERT_NEAR(found[i], expected[i], 1e-4f * (1 + std::abs(expected[i])))
                << "width " << width << " combiner " << static_cast<int>(combiner) << " at " << i;
          }
          pair.expect_equal_tables();
        }
      }
    }
  }
}

// Lookups of several tables, each with a number of bags of one id, on both devices: the same bits.
void expect_equal_rows(RowType type, std::int64_t width, DefaultRow missing, bool insert,
                       const std::vector<std::int64_t>& bags_of_tables, Seeded& random) {
  constexpr std::int64_t kIds = 400, kKnown = 200;
  TestContext context;
  cpu::ThreadExecutor executor{2};
  std::vector<std::unique_ptr<cpu::Table>> host;
  std::vector<std::unique_ptr<Table>> device;
  std::vector<std::vector<Key>> ids;
  std::vector<std::vector<char>> expected;
  std::vector<Buffer> uploads, outputs;
  std::vector<cpu::LookupFeature> host_features;
  std::vector<LookupFeature> features;
  for (const std::int64_t count : bags_of_tables) {
    TableConfig config = config_of(width);
    config.row_type = type;
    config.default_row = missing;
    if (host.size() % 3 == 1) config.rows = kIds;
    host.push_back(cpu::make_table(config));
    device.push_back(make_device_table(context, config));
    if (config.is_static()) host.back()->initialize_static(executor);
    const auto draw = [&](std::int64_t n) {
      std::vector<Key> keys(n);
      for (Key& key : keys) key = static_cast<Key>(random.below(kIds));
      return keys;
    };
    if (!config.is_static()) {
      const std::vector<Key> known = draw(kKnown);
      std::vector<Row> rows(kKnown);
      expect_ok(host.back()->reserve(executor, {{known.data(), kKnown}}));
      host.back()->find_or_insert(known.data(), kKnown, rows.data());
      host.back()->settle();
      resolve_all(context, *device.back(), known, true);
    }
    ids.push_back(draw(count));
    expected.emplace_back(count * width * row_type_bytes(type));
  }
  for (std::size_t t = 0; t < host.size(); ++t) {
    Bags bags;
    bags.ids = ids[t].data();
    bags.bags = bags.known_count = static_cast<std::int64_t>(ids[t].size());
    host_features.push_back({host[t].get(), bags, {type, expected[t].data()}, 0.0f});
    uploads.push_back(context.upload(ids[t]));
    outputs.push_back(context.allocate(expected[t].size()));
    bags.ids = uploads[t].as<Key>();
    features.push_back({device[t].get(), bags, {type, outputs[t].data}, 0.0f});
  }
  expect_ok(cpu::lookup(executor, host_features, insert));
  expect_ok(lookup(context, features, insert));
  for (std::size_t t = 0; t < host.size(); ++t) {
    ASSERT_EQ(context.download<char>(outputs[t], expected[t].size()), expected[t])
        << "width " << width << " table " << t;
  }
}

std::vector<RowType> row_types() {
  if (under_sanitizer()) return {RowType::kFloat32};
  return {RowType::kFloat32, RowType::kFloat16, RowType::kBFloat16};
}

void expect_equal_rows_of_widths(RowType type, const std::vector<std::int64_t>& widths) {
  for (const std::int64_t width : widths) {
    Seeded random(run_seed() + static_cast<std::uint64_t>(width));
    for (const bool insert : {false, true}) {
      expect_equal_rows(type, width, DefaultRow::kInitialValue, insert, {1, 33, scaled(3000, 300)},
                        random);
      expect_equal_rows(type, width, DefaultRow::kZeros, insert, {7, 0, 32}, random);
    }
  }
}

// Nothing is rounded.
TEST(DeviceLookupTest, OneIdABagGivesTheRowsThemselves) {
  for (const RowType type : row_types()) {
    const std::int64_t most = 4096 / row_type_bytes(type);
    expect_equal_rows_of_widths(type, {most / 8 - 8, most / 8 + 2, most + 8});
  }
}

// Rows of 512 to 4096 bytes go through the copy engine. (native.py knows these tests by their suite.)
TEST(DeviceCopyEngineTest, GivesTheRowsThemselves) {
  for (const RowType type : row_types()) {
    const std::int64_t most = 4096 / row_type_bytes(type);
    expect_equal_rows_of_widths(type, {most / 8, most / 8 + 4, most / 2 + 8, most});
  }
}

// So many bags that each warp of the device fills its ring many times, and more features than fit
// into a launch's parameters.
TEST(DeviceCopyEngineTest, GoesRoundItsRingManyTimes) {
  Seeded random(run_seed());
  for (const RowType type : row_types()) {
    const std::int64_t most = 4096 / row_type_bytes(type);
    for (const std::int64_t width : {most / 8, most / 4 + 8, most}) {
      expect_equal_rows(type, width, DefaultRow::kInitialValue, false,
                        {scaled(90000, 3000), scaled(40000, 3000)}, random);
    }
  }
  const std::vector<std::int64_t> many(40, scaled(700, 20));
  expect_equal_rows(RowType::kFloat32, 128, DefaultRow::kZeros, true, many, random);
}

TEST(DeviceMergeTest, FollowsTheCpuAndInFixedOrderToTheBitInEveryRun) {
  for (const std::int64_t width : widths()) {
    Seeded random(run_seed() + 100 + static_cast<std::uint64_t>(width));
    const Batch batch(random, scaled(4000, 100), width, 300);
    for (const bool is_static : {false, true}) {
      TableConfig config = config_of(width);
      if (is_static) config.rows = 300;
      Pair pair(config);
      const auto [keys, gradients] = pair.merged(batch, Combiner::kMean);
      std::map<Key, const float*> expected;
      for (std::size_t k = 0; k < keys.size(); ++k) expected[keys[k]] = &gradients[k * width];

      const DeviceBatch on_device(pair.context, batch);
      MergeFeature feature;
      feature.bags = on_device.bags(Combiner::kMean, true);
      feature.gradient = {RowType::kFloat32, on_device.gradients.data};
      std::vector<std::pair<std::vector<Key>, std::vector<float>>> in_order;
      for (int run = 0; run < 4; ++run) {
        pair.context.in_order = run > 0;
        Buffer out_keys, out_sums;
        std::int64_t count = 0;
        expect_ok(merge(pair.context, pair.device.get(), {feature},
                        [&](std::int64_t n, Key** k, float** g) -> Status {
                          out_keys = pair.context.allocate(n * sizeof(Key));
                          out_sums = pair.context.allocate(n * width * sizeof(float));
                          *k = out_keys.as<Key>();
                          *g = out_sums.as<float>();
                          count = n;
                          return {};
                        }));
        ASSERT_EQ(count, static_cast<std::int64_t>(keys.size()));
        const auto found_keys = pair.context.download<Key>(out_keys, count);
        const auto sums = pair.context.download<float>(out_sums, count * width);
        for (std::int64_t k = 0; k < count; ++k) {
          ASSERT_EQ(expected.count(found_keys[k]), 1u) << found_keys[k];
          for (std::int64_t c = 0; c < width; ++c) {
            ASSERT_NEAR(sums[k * width + c], expected[found_keys[k]][c], 1e-4f);
          }
        }
        in_order.emplace_back(found_keys, sums);
      }
      ASSERT_EQ(in_order[1], in_order[2]);
      ASSERT_EQ(in_order[1], in_order[3]);
    }
  }
}

}  // namespace
}  // namespace sok::cuda
