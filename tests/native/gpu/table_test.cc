// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The table in device memory against the one on the CPU.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "tests/native/gpu/device_testing.h"

namespace sok::cuda {
namespace {

using cpu::config_of;
using cpu::Seeded;

class DeviceTableTest : public cpu::EveryHash {};
SOK_INSTANTIATE_FOR_EVERY_HASH(DeviceTableTest);

TEST_P(DeviceTableTest, EveryKeyIsLegalAndRowsHaveTheirInitialValues) {
  TestContext context;
  auto device = make_device_table(context, config(5));
  auto host = cpu::make_table(config(5));
  std::vector<Key> keys = cpu::sentinel_keys();
  for (Key key = 0; key < sized(2000); ++key) keys.push_back(key * 7919);
  keys.insert(keys.end(), keys.begin(), keys.end());  // each of them twice in one call
  const std::vector<Row> rows = resolve_all(context, *device, keys, true);
  cpu::insert(*host, keys);
  for (std::size_t i = 0; i < keys.size() / 2; ++i) {
    ASSERT_EQ(rows[i], rows[i + keys.size() / 2]) << "key " << keys[i] << " has two rows";
  }
  expect_equal(contents_of(*host), contents_of(context, *device), 0);
}

TEST_P(DeviceTableTest, GrowsOverSeveralDoublingsInOneCall) {
  TestContext context;
  auto device = make_device_table(context, config(3, 16));
  std::vector<Key> keys(scaled(sized(400'000), 3000));
  std::iota(keys.begin(), keys.end(), -1000);
  if (GetParam()) keys.resize(std::min<std::size_t>(keys.size(), 4000));
  resolve_all(context, *device, {5, 6, 7}, true);
  resolve_all(context, *device, keys, true);
  std::int64_t size = 0;
  expect_ok(device->size(context, &size));
  EXPECT_EQ(size, static_cast<std::int64_t>(keys.size()));
  const std::vector<Row> rows = resolve_all(context, *device, keys, false);
  EXPECT_EQ(std::count(rows.begin(), rows.end(), kNoRow), 0);
  EXPECT_EQ(*std::max_element(rows.begin(), rows.end()), keys.size() - 1);
}

// 100,000 random operations, each on a few keys.
TEST_P(DeviceTableTest, FollowsTheTableOfTheCpu) {
  Seeded random(run_seed() * 2 + GetParam());
  TestContext context;
  cpu::ThreadExecutor executor(1);
  auto device = make_device_table(context, config(4));
  auto host = cpu::make_table(config(4));
  const std::int64_t operations = scaled(sized(100'000), 500);
  const auto some_keys = [&] {
    std::vector<Key> keys(random.below(40));
    for (Key& key : keys) {
      const auto& sentinels = cpu::sentinel_keys();
      key = random.below(20) == 0 ? sentinels[random.below(sentinels.size())]
                                  : static_cast<Key>(random.below(3000)) - 1500;
    }
    return keys;
  };
  for (std::int64_t operation = 0; operation < operations; ++operation) {
    SCOPED_TRACE(::testing::Message() << "operation " << operation);
    const std::vector<Key> keys = some_keys();
    const auto count = static_cast<std::int64_t>(keys.size());
    const std::uint64_t kind = random.below(100);
    if (kind < 40) {
      resolve_all(context, *device, keys, true);
      cpu::insert(*host, keys);
    } else if (kind < 70) {
      const auto rows = resolve_all(context, *device, keys, false);
      const auto expected = cpu::find(*host, keys);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        ASSERT_EQ(rows[i] == kNoRow, expected[i] == kNoRow) << "key " << keys[i];
      }
    } else if (kind < 99) {
      const Buffer ids = context.upload(keys);
      std::int64_t erased = 0;
      expect_ok(device->erase(context, ids.as<Key>(), count, &erased));
      ASSERT_EQ(erased, host->erase(keys.data(), count));
    } else {
      // What is written stays with its key through all that follows.
      const auto rows = resolve_all(context, *device, keys, true);
      auto host_rows = cpu::insert(*host, keys);
      std::vector<float> values;
      for (const Key key : keys) {
        for (int c = 0; c < 4; ++c)
          values.push_back(static_cast<float>(key % 1000 + c + operation));
      }
      const Buffer device_rows = context.upload(rows), device_values = context.upload(values);
      expect_ok(write_plane(context, *device, 0, device_rows.as<Row>(), count,
                            device_values.as<float>()));
      cpu::write_plane(executor, *host, 0, host_rows.data(), count, values.data());
    }
    if (operation % (operations / 40 + 1) == 0) {
      expect_equal(contents_of(*host), contents_of(context, *device), 0);
      if (::testing::Test::HasFatalFailure()) return;
    }
    if (operation == operations / 2) {
      expect_ok(device->clear(context));
      host->clear();
    }
  }
  expect_equal(contents_of(*host), contents_of(context, *device), 0);
}

TEST_P(DeviceTableTest, APlaneKeepsItsWidth) {
  TestContext context;
  auto table = make_device_table(context, config(2));
  expect_ok(table->attach_planes(context, {{"m", 2, 0.0f}}));
  const Status status = table->attach_planes(context, {{"v", 2, 0.0f}, {"m", 3, 0.0f}});
  EXPECT_EQ(status.message(), "table 'tested': plane 'm' has width 2, not 3");
  EXPECT_EQ(table->plane_count(), 2) << "the table is unchanged";
}

TEST_P(DeviceTableTest, PlanesAreRefusedOrTakenBack) {
  TestContext context;
  auto table = make_device_table(context, config(4));
  resolve_all(context, *table, {1, 2}, true);
  expect_ok(table->attach_planes(context, {{"adam.m", 4, 0.0f}}));
  const Contents before = contents_of(context, *table);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [bad, message] : std::vector<std::pair<PlaneSpec, std::string>>{
           {{"adam.v", 1, 0.0f}, "table 'tested': plane 'adam.v' has width 4, not 1"},
           {{"adam.v", 4, nan},
            "table 'tested': plane 'adam.v' must start at a finite number, got nan"},
       }) {
    const Status status = table->attach_planes(context, {{"mine", 2, 1.0f}, bad});
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message(), message);
    EXPECT_EQ(table->plane_count(), 2);
  }
  expect_ok(table->attach_planes(context, {{"adam.v", 4, 7.0f}, {"mine", 2, 1.0f}}));
  table->detach_planes(2);
  resolve_all(context, *table, {1, 2}, true);
  expect_equal(before, contents_of(context, *table), 0);
  expect_ok(table->attach_planes(context, {{"adam.v", 4, 0.5f}}));
  Contents expected = before;
  for (auto& [key, columns] : expected) columns.resize(12, 0.5f);
  expect_equal(expected, contents_of(context, *table), 0);
}

// A deleted slot counts no more once an insertion has taken it: a table whose keys are replaced over
// and over is not rebuilt for that.
TEST_P(DeviceTableTest, ReusedSlotsAreNotCountedAsDeleted) {
  constexpr std::int64_t kKeys = 14 * 16;
  TestContext context;
  auto table = make_device_table(context, config(1, kKeys));
  ASSERT_EQ(limit_of(table->view().index.groups), kKeys);
  std::vector<Key> keys(kKeys - 40);
  std::iota(keys.begin(), keys.end(), -20);
  resolve_all(context, *table, keys, true);
  Seeded random(run_seed() + 600);
  for (int round = 0; round < 50; ++round) {
    std::shuffle(keys.begin(), keys.end(), random.generator);
    const std::vector<Key> some(keys.begin(), keys.begin() + 1 + random.below(40));
    const auto count = static_cast<std::int64_t>(some.size());
    std::int64_t erased = 0;
    const Buffer ids = context.upload(some);
    expect_ok(table->erase(context, ids.as<Key>(), count, &erased));
    ASSERT_EQ(erased, count);
    resolve_all(context, *table, some, true);
  }
  auto of = stats_of(context, *table);
  EXPECT_EQ(of["rows"], kKeys - 40);
  const IndexRef index = table->view().index;
  std::vector<unsigned char> bytes(std::size_t{index.groups} * kGroup);
  expect_ok(cudaMemcpy(bytes.data(), index.control, bytes.size(), cudaMemcpyDeviceToHost));
  EXPECT_EQ(of["deleted_slots"], std::count(bytes.begin(), bytes.end(), kDeletedByte));
  if (!GetParam()) return;
  // Where all keys collide there is one probe sequence: every deleted slot is the first free one of
  // a later key.
  EXPECT_EQ(of["deleted_slots"], 0);
  EXPECT_EQ(of["index_growths"], 0);
}

TEST(DeviceMemoryTest, ATableLivesOnWhenThereIsNone) {
  TestContext context;
  auto table = make_device_table(context, config_of(6, 100));
  std::vector<Key> keys(100);
  std::iota(keys.begin(), keys.end(), 0);
  resolve_all(context, *table, keys, true);
  const Contents before = contents_of(context, *table);
  std::vector<Key> many(20'000);
  std::iota(many.begin(), many.end(), 50);
  const Buffer ids = context.upload(many);
  const IdSpan span{ids.as<Key>(), static_cast<std::int64_t>(many.size())};
  // Memory ends at the first allocation of a growth, at its second, and so on.
  int refused = 0;
  for (;; ++refused) {
    context.allocations_left = refused;
    const Status status = reserve(context, table.get(), {span});
    context.allocations_left = -1;
    if (status.ok()) break;
    ASSERT_EQ(status.code(), Code::kResourceExhausted);
    ASSERT_NE(status.message().find("bytes asked for"), std::string::npos) << status.message();
    expect_equal(before, contents_of(context, *table), 0);
  }
  EXPECT_GE(refused, 3);
  resolve_all(context, *table, many, true);
  std::int64_t size = 0;
  expect_ok(table->size(context, &size));
  EXPECT_EQ(size, 20'050);
}

// Whatever share of the rows the device's memory takes, and whenever it ends.
TEST(DeviceMemoryTest, AHybridTableGoesOnInTheHostsMemory) {
  TestContext context;
  std::vector<Key> keys(9'000);
  std::iota(keys.begin(), keys.end(), -4'000);
  for (const std::int64_t width : {6, 128}) {
    TableConfig config = config_of(width, 100);
    auto all = make_device_table(context, config);
    resolve_all(context, *all, keys, true);
    const std::int64_t row = width * 4;
    for (const std::int64_t share : {std::int64_t{0}, 70 * row, 3'000 * row}) {
      config.device_bytes = share;
      auto table = make_device_table(context, config);
      resolve_all(context, *table, keys, true);
      expect_ok(table->attach_planes(context, {{"state", width, 2.5f}}));
      resolve_all(context, *table, {1'000'000, 1'000'001}, true);
      auto of = stats_of(context, *table);
      EXPECT_GE(of["pinned_bytes"], 2 * row * 9'002 - share);
      // What the index and the bookkeeping take, at most.
      EXPECT_LE(of["bytes"] - of["pinned_bytes"] - 17 * of["index_slots"], share + 4 * 20'000);
      Contents expected = contents_of(context, *all);
      for (auto& [key, columns] : expected) columns.resize(2 * width, 2.5f);
      Contents found = contents_of(context, *table);
      EXPECT_EQ(found.erase(1'000'000) + found.erase(1'000'001), 2u);
      expect_equal(expected, found, 0);
    }
  }
  // The device's memory ends by itself while the table grows.
  TableConfig config = config_of(6, 100);
  config.device_bytes = std::numeric_limits<std::int64_t>::max();
  auto table = make_device_table(context, config);
  context.is_full = true;
  resolve_all(context, *table, keys, true);
  context.is_full = false;
  auto of = stats_of(context, *table);
  EXPECT_EQ(of["rows"], static_cast<std::int64_t>(keys.size()));
  EXPECT_GE(of["pinned_bytes"], 6 * 4 * 8'900);
  EXPECT_GE(of["bytes"] - of["pinned_bytes"], 6 * 4 * 100);
}

TEST(DeviceTableTest, ReachesBeyondTwoToThe31Elements) {
  if (under_sanitizer()) return;  // a sanitizer needs as much memory again
  TestContext context;
  cpu::ThreadExecutor executor(1);
  constexpr std::int64_t kRows = (std::int64_t{1} << 31) / 64 + 1000;
  for (const bool is_static : {true, false}) {
    TableConfig config = config_of(64, 0);
    (is_static ? config.rows : config.capacity) = kRows;
    auto table = make_device_table(context, config);
    for (Key begin = 0; !is_static && begin < kRows; begin += 1 << 22) {
      std::vector<Key> keys(std::min<std::int64_t>(1 << 22, kRows - begin));
      std::iota(keys.begin(), keys.end(), begin);
      resolve_all(context, *table, keys, true);
    }
    const std::vector<Key> last = {kRows - 1, kRows - 2, 0};
    const Buffer ids = context.upload(last), out = context.allocate(3 * 64 * sizeof(float));
    LookupFeature feature;
    feature.table = table.get();
    feature.bags.ids = ids.as<Key>();
    feature.bags.bags = feature.bags.known_count = 3;
    feature.output = {RowType::kFloat32, out.data};
    expect_ok(lookup(context, {feature}, false));
    const auto values = context.download<float>(out, 3 * 64);
    for (std::uint32_t i = 0; i < 3 * 64; ++i) {
      ASSERT_EQ(values[i], config.initializer.value(last[i / 64], i % 64)) << i;
    }
  }
}

}  // namespace
}  // namespace sok::cuda
