// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The table as a map: against std::unordered_map.
#include <algorithm>
#include <set>
#include <unordered_map>

#include "tests/native/testing.h"

namespace sok::cpu {
namespace {

class TableTest : public EveryHash {};
SOK_INSTANTIATE_FOR_EVERY_HASH(TableTest);

// A key from a small range, so that it often is there, or a sentinel.
Key draw_key(Seeded& random, std::uint64_t range) {
  const auto& sentinels = sentinel_keys();
  if (random.below(8) == 0) return sentinels[random.below(sentinels.size())];
  return static_cast<Key>(random.below(range)) - static_cast<Key>(range / 2);
}

TEST_P(TableTest, FollowsAMapUnderRandomInsertFindErase) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    Seeded random(seed);
    const auto table = make_table(config(3));
    std::unordered_map<Key, float> expected;  // key -> a number written into its row
    const std::int64_t operations = sized(100000);
    for (std::int64_t done = 0; done < operations;) {
      std::vector<Key> keys(1 + random.below(200));
      for (Key& key : keys) key = draw_key(random, static_cast<std::uint64_t>(sized(16000)));
      done += static_cast<std::int64_t>(keys.size());
      if (random.below(3) == 0) {
        std::set<Key> present;
        for (Key key : keys) {
          if (expected.count(key) != 0) present.insert(key);
        }
        ASSERT_EQ(table->erase(keys.data(), static_cast<std::int64_t>(keys.size())),
                  static_cast<std::int64_t>(present.size()));
        for (Key key : keys) expected.erase(key);
        continue;
      }
      const std::vector<Row> rows = insert(*table, keys);
      const PlaneRef<float> plane = table->plane<float>(0);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        ASSERT_NE(rows[i], kNoRow);
        const auto [entry, is_new] = expected.emplace(keys[i], 0.0f);
        if (is_new) {
          ASSERT_EQ(plane.row(rows[i])[0], first_value(*table, keys[i])) << "key " << keys[i];
          entry->second = static_cast<float>(random.below(1 << 20));
          plane.row(rows[i])[0] = entry->second;
        }
        ASSERT_EQ(plane.row(rows[i])[0], entry->second) << "key " << keys[i];
      }
    }
    const std::map<Key, Row> found = contents(*table);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [key, value] : expected) {
      ASSERT_EQ(found.count(key), 1u) << "key " << key;
      ASSERT_EQ(table->plane<float>(0).row(found.at(key))[0], value) << "key " << key;
    }
  }
}

TEST_P(TableTest, EveryKeyIsLegal) {
  const auto table = make_table(config(1));
  const std::vector<Row> rows = insert(*table, sentinel_keys());
  EXPECT_EQ(std::set<Row>(rows.begin(), rows.end()).size(), sentinel_keys().size());
  std::vector<Key> many(sized(8000));
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = 1000 + static_cast<Key>(i);
  insert(*table, many);
  EXPECT_EQ(find(*table, sentinel_keys()), rows) << "after growth";
  EXPECT_EQ(table->erase(many.data(), static_cast<std::int64_t>(many.size())),
            static_cast<std::int64_t>(many.size()));
  EXPECT_EQ(find(*table, sentinel_keys()), rows) << "after erasing others";
  for (Key key : sentinel_keys()) {
    EXPECT_EQ(table->erase(&key, 1), 1) << key;
    EXPECT_EQ(find(*table, {key})[0], kNoRow) << key;
    EXPECT_EQ(table->erase(&key, 1), 0) << key;
  }
  EXPECT_EQ(table->size(), 0);
}

TEST_P(TableTest, AnIdThatOccursTwiceGetsOneRow) {
  const auto table = make_table(config(2));
  const std::vector<Row> rows = insert(*table, {7, 7, 8, 7});
  EXPECT_EQ(rows[0], rows[1]);
  EXPECT_EQ(rows[0], rows[3]);
  EXPECT_NE(rows[0], rows[2]);
  EXPECT_EQ(table->size(), 2);
}

TEST_P(TableTest, FindInsertsNothing) {
  const auto table = make_table(config(2));
  insert(*table, {1});
  EXPECT_EQ(find(*table, {2, 1, 3}), (std::vector<Row>{kNoRow, find(*table, {1})[0], kNoRow}));
  EXPECT_EQ(table->size(), 1);
}

// Erasing the first of two keys of one probe sequence must not hide the second, nor double it.
TEST_P(TableTest, ErasedSlotsAreReused) {
  const auto table = make_table(config(1));
  const std::vector<Key> keys = {1, 2};
  const std::vector<Row> rows = insert(*table, keys);
  EXPECT_EQ(table->erase(&keys[0], 1), 1);
  EXPECT_EQ(insert(*table, {2})[0], rows[1]);
  EXPECT_EQ(table->size(), 1);
  // Across more than one group of slots as well.
  std::vector<Key> many(100);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<Key>(10 + i);
  insert(*table, many);
  const std::int64_t erased = table->erase(many.data(), 40);
  EXPECT_EQ(erased, 40);
  const std::vector<Key> rest(many.begin() + 40, many.end());
  const std::vector<Row> before = find(*table, rest);
  EXPECT_EQ(insert(*table, rest), before);
  insert(*table, many);
  EXPECT_EQ(contents(*table).size(), many.size() + 1);
}

// A table that is filled and emptied over and over stays small, and its searches end.
TEST_P(TableTest, ChurnDoesNotGrowTheTable) {
  const auto table = make_table(config(1, 200));
  std::int64_t bytes = 0;
  for (Key round = 0; round < 300; ++round) {
    std::vector<Key> keys(100);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = round * 100 + static_cast<Key>(i);
    insert(*table, keys);
    ASSERT_EQ(contents(*table).size(), 100u);
    ASSERT_EQ(table->erase(keys.data(), 100), 100);
    if (round == 2) bytes = table->bytes();
  }
  EXPECT_EQ(table->bytes(), bytes);
  EXPECT_EQ(find(*table, {5})[0], kNoRow);
}

// Of the index's control bytes.
std::int64_t slots_marked_deleted(const Table& table) {
  const IndexRef index = table.index();
  const auto* bytes = reinterpret_cast<const unsigned char*>(index.control);
  return std::count(bytes, bytes + std::size_t{index.groups} * kGroup, kDeletedByte);
}

// A deleted slot counts no more once an insertion has taken it: a table whose keys are replaced over
// and over is not rebuilt for that.
TEST_P(TableTest, ReusedSlotsAreNotCountedAsDeleted) {
  constexpr std::int64_t kKeys = 14 * 16;
  const auto table = make_table(config(1, kKeys));
  ASSERT_EQ(limit_of(table->index().groups), kKeys);
  Seeded random(3);
  const auto draw = [&](std::int64_t count) {
    std::set<Key> keys;
    while (static_cast<std::int64_t>(keys.size()) < count) keys.insert(draw_key(random, 1 << 20));
    return std::vector<Key>(keys.begin(), keys.end());
  };
  std::vector<Key> keys = draw(kKeys - 40);
  insert(*table, keys, 4);
  for (int round = 0; round < 100; ++round) {
    std::shuffle(keys.begin(), keys.end(), random.generator);
    const std::vector<Key> some(keys.begin(), keys.begin() + 1 + random.below(40));
    ASSERT_EQ(table->erase(some.data(), static_cast<std::int64_t>(some.size())),
              static_cast<std::int64_t>(some.size()));
    ASSERT_EQ(stat(*table, "deleted_slots"), slots_marked_deleted(*table)) << "after erasing";
    if (round % 2 == 0) {
      insert(*table, some, 4);
    } else {  // the other way in, for keys that no other thread has
      ThreadExecutor executor(1);
      const auto count = static_cast<std::int64_t>(some.size());
      std::vector<Row> rows(some.size());
      ASSERT_TRUE(table->reserve(executor, {{some.data(), count}}).ok());
      table->find_or_insert_distinct(some.data(), count, rows.data());
      table->settle();
    }
    ASSERT_EQ(stat(*table, "deleted_slots"), slots_marked_deleted(*table)) << "after inserting";
    ASSERT_EQ(contents(*table).size(), keys.size());
  }
  if (!GetParam()) return;
  // Where all keys collide there is one probe sequence: every deleted slot is the first free one of
  // a later key.
  EXPECT_EQ(slots_marked_deleted(*table), 0);
  EXPECT_EQ(stat(*table, "index_growths"), 0);
}

TEST_P(TableTest, AReusedRowStartsAfresh) {
  const auto table = make_table(config(2));
  ASSERT_TRUE(table->attach_planes({{"state", 2, 0.5f}}).ok());
  const Row row = insert(*table, {1})[0];
  table->plane<float>(0).row(row)[0] = 100;
  table->plane<float>(1).row(row)[1] = 100;
  const Key key = 1;
  table->erase(&key, 1);
  EXPECT_EQ(insert(*table, {2})[0], row) << "the row is used again";
  EXPECT_EQ(table->plane<float>(0).row(row)[0], first_value(*table, 2));
  EXPECT_EQ(table->plane<float>(1).row(row)[0], 0.5f);
  EXPECT_EQ(table->plane<float>(1).row(row)[1], 0.5f);
}

TEST_P(TableTest, APlaneKeepsItsWidth) {
  const auto table = make_table(config(2));
  ASSERT_TRUE(table->attach_planes({{"m", 2, 0.0f}}).ok());
  const Status status = table->attach_planes({{"v", 2, 0.0f}, {"m", 3, 0.0f}});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(), "table 'tested': plane 'm' has width 2, not 3");
  EXPECT_EQ(table->plane_count(), 2) << "the table is unchanged";
  EXPECT_TRUE(table->attach_planes({{"m", 2, 0.0f}}).ok());
}

TEST_P(TableTest, ClearForgetsEverything) {
  const auto table = make_table(config(1));
  insert(*table, {1, 2, 3});
  table->clear();
  EXPECT_EQ(table->size(), 0);
  EXPECT_TRUE(contents(*table).empty());
  insert(*table, {3});
  EXPECT_EQ(contents(*table).size(), 1u);
}

TEST(StaticTableTest, RowsAreTheirNumbers) {
  TableConfig config = config_of(2);
  config.rows = 5;
  for (const OutOfRange policy : {OutOfRange::kError, OutOfRange::kZero, OutOfRange::kClip}) {
    config.out_of_range = policy;
    const auto table = make_table(config);
    const bool clip = policy == OutOfRange::kClip;
    const Row below = clip ? 0 : kNoRow, above = clip ? 4 : kNoRow;
    EXPECT_EQ(find(*table, {0, 4, 5, -1, kMost, kLeast}),
              (std::vector<Row>{0, 4, above, below, above, below}));
    const std::vector<Key> ids = {4, 5};
    const Status status = table->check_range(ids.data(), 2);
    EXPECT_EQ(status.ok(), policy != OutOfRange::kError);
    if (!status.ok()) {
      EXPECT_NE(status.message().find("id 5 at position 1"), std::string::npos) << status.message();
      EXPECT_NE(status.message().find("5 rows"), std::string::npos) << status.message();
    }
  }
}

}  // namespace
}  // namespace sok::cpu
