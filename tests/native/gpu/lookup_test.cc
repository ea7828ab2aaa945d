// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Lookups that insert nothing, on a GPU against the CPU: bags of very different lengths beside each
// other, rows of every width and type in one slab or many, and ids that have no row.
#include "tests/native/gpu/table_pair.h"

namespace sok::cuda {
namespace {

constexpr std::uint64_t kKnown = 600;

// Runs of empty bags, single ids, a few ids, and bags much longer than a warp.
Batch bags_of_all_kinds(Seeded& random, std::int64_t count, std::uint64_t keys) {
  Batch batch(random, 0, 1, keys);
  for (std::int64_t bag = 0; bag < count; ++bag) {
    const std::uint64_t kind = random.below(10);
    std::uint64_t length = kind < 4 ? 0 : kind < 7 ? 1 : kind < 9 ? random.below(9) : 0;
    if (kind == 9) length = random.below(scaled(150, 40));
    for (; length > 0; --length) {
      batch.ids.push_back(static_cast<Key>(random.below(keys)));
      batch.weights.push_back(static_cast<float>(random.below(17)) / 4.0f - 2.0f);
    }
    batch.splits.push_back(static_cast<std::int64_t>(batch.ids.size()));
  }
  return batch;
}

// A table on each device with the keys below kKnown, inserted a few at a time, so that it grows.
void fill(Pair& pair) {
  if (pair.host->config().is_static()) return;
  for (Key begin = 0; begin < static_cast<Key>(kKnown); begin = 2 * begin + 10) {
    std::vector<Key> keys;
    for (Key key = begin; key < std::min<Key>(2 * begin + 10, kKnown); ++key) keys.push_back(key);
    std::vector<Row> rows(keys.size());
    const auto count = static_cast<std::int64_t>(keys.size());
    expect_ok(pair.host->reserve(pair.executor, {{keys.data(), count}}));
    pair.host->find_or_insert(keys.data(), count, rows.data());
    pair.host->settle();
    resolve_all(pair.context, *pair.device, keys, true);
  }
}

float value_of(const char* data, RowType type, std::int64_t at) {
  if (type == RowType::kFloat32) return reinterpret_cast<const float*>(data)[at];
  if (type == RowType::kFloat16) return to_float(reinterpret_cast<const Half*>(data)[at]);
  return to_float(reinterpret_cast<const BFloat16*>(data)[at]);
}

// The same lookup on both devices.
void expect_equal_lookups(Pair& pair, const Batch& batch, Combiner combiner, bool weighted,
                          float max_norm, RowType output) {
  const std::int64_t width = pair.host->config().dimension, count = batch.bag_count() * width;
  std::vector<char> expected(count * row_type_bytes(output));
  cpu::LookupFeature feature;
  feature.table = pair.host.get();
  feature.bags = batch.bags(combiner, weighted);
  feature.output = {output, expected.data()};
  feature.max_norm = max_norm;
  expect_ok(cpu::lookup(pair.executor, {feature}, false));

  const DeviceBatch on_device(pair.context, batch);
  const Buffer out = pair.context.allocate(expected.size());
  LookupFeature device_feature;
  device_feature.table = pair.device.get();
  device_feature.bags = on_device.bags(combiner, weighted);
  device_feature.output = {output, out.data};
  device_feature.max_norm = max_norm;
  expect_ok(lookup(pair.context, {device_feature}, false));
  const auto found = pair.context.download<char>(out, expected.size());
  const float tolerance = output == RowType::kFloat32 ? 1e-3f : 2e-2f;
  for (std::int64_t i = 0; i < count; ++i) {
    const float wanted = value_of(expected.data(), output, i);
    ASSERT_NEAR(value_of(found.data(), output, i), wanted, tolerance * (1 + std::abs(wanted)))
        << "width " << width << " bag " << i / width << " column " << i % width << " combiner "
        << static_cast<int>(combiner) << " weighted " << weighted << " max_norm " << max_norm;
  }
}

class LookupTest : public ::testing::TestWithParam<RowType> {};
INSTANTIATE_TEST_SUITE_P(Rows, LookupTest,
                         ::testing::Values(RowType::kFloat32, RowType::kFloat16,
                                           RowType::kBFloat16));

TEST_P(LookupTest, OfBagsOfAllKindsFollowsTheCpu) {
  std::vector<std::int64_t> widths = {1,  3,   4,   8,   12,  16,  24,  31,
                                      64, 100, 128, 136, 256, 520, 1032};
  if (under_sanitizer()) widths = {5, 8, 24, 136};
  for (const std::int64_t width : widths) {
    Seeded random(run_seed() + 31 * static_cast<std::uint64_t>(width));
    // A third of the ids have no row; a table of many rows a bag takes less of them.
    const Batch some_missing = bags_of_all_kinds(random, scaled(900, 60), kKnown * 3 / 2);
    const Batch all_there = bags_of_all_kinds(random, scaled(900, 60), kKnown);
    for (const bool is_static : {false, true}) {
      for (const DefaultRow missing : {DefaultRow::kInitialValue, DefaultRow::kZeros}) {
        TableConfig config = config_of(width);
        config.row_type = GetParam();
        config.default_row = missing;
        if (is_static) {
          config.rows = static_cast<std::int64_t>(kKnown);
          config.out_of_range = OutOfRange::kClip;
        }
        Pair pair(config);
        fill(pair);
        for (const Batch* batch : {&some_missing, &all_there}) {
          for (const Combiner combiner : kCombiners) {
            expect_equal_lookups(pair, *batch, combiner, false, 0.0f, RowType::kFloat32);
            expect_equal_lookups(pair, *batch, combiner, true, 0.0f, GetParam());
          }
          expect_equal_lookups(pair, *batch, Combiner::kMean, true, 0.1f, RowType::kFloat32);
          expect_equal_lookups(pair, *batch, Combiner::kSqrtn, false, 0.1f, RowType::kFloat32);
        }
      }
    }
  }
}

// Few bags: most tiles of the last warp have none.
TEST_P(LookupTest, OfFewBagsFollowsTheCpu) {
  for (const std::int64_t width : {2, 8, 40}) {
    TableConfig config = config_of(width);
    config.row_type = GetParam();
    Pair pair(config);
    fill(pair);
    for (std::int64_t bags = 1; bags < 40; bags += 3) {
      Seeded random(run_seed() + static_cast<std::uint64_t>(bags));
      expect_equal_lookups(pair, bags_of_all_kinds(random, bags, kKnown + 3), Combiner::kMean,
                           false, 0.0f, RowType::kFloat32);
    }
  }
}

// So many bags that each tile has several.
TEST_P(LookupTest, OfManyBagsFollowsTheCpu) {
  for (const std::int64_t width : {64, 128, 136}) {
    TableConfig config = config_of(width);
    config.row_type = GetParam();
    Pair pair(config);
    fill(pair);
    Seeded random(run_seed() + static_cast<std::uint64_t>(width));
    for (const std::uint64_t keys : {kKnown, kKnown + 40}) {
      const Batch batch = bags_of_all_kinds(random, scaled(30000, 300), keys);
      expect_equal_lookups(pair, batch, Combiner::kMean, false, 0.0f, RowType::kFloat32);
      expect_equal_lookups(pair, batch, Combiner::kSqrtn, true, 0.2f, GetParam());
    }
  }
}

// Row splits that lie in the middle of a tile: nothing outside of the ids is read, and it is said.
TEST(LookupOfLiesTest, IsRefused) {
  Pair pair(config_of(64));
  fill(pair);
  Seeded random(run_seed());
  Batch batch = bags_of_all_kinds(random, scaled(30000, 300), kKnown);
  const auto ids = static_cast<std::int64_t>(batch.ids.size());
  for (const std::int64_t lie :
       {std::int64_t{-5}, std::int64_t{0}, ids + 7, std::int64_t{1} << 60}) {
    Batch lying = batch;
    lying.splits[lying.splits.size() / 2] = lie;
    const DeviceBatch on_device(pair.context, lying);
    const Buffer out = pair.context.allocate(lying.bag_count() * 64 * sizeof(float));
    LookupFeature feature;
    feature.table = pair.device.get();
    feature.bags = on_device.bags(Combiner::kMean, false);
    feature.output = {RowType::kFloat32, out.data};
    expect_ok(lookup(pair.context, {feature}, false));
    expect_ok(synchronise(pair.context));
    const Status status = lookup(pair.context, {feature}, false);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("row_splits"), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace sok::cuda
