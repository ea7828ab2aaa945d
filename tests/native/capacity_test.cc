// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Growth, its limits, and what is left after memory has run out.
#include "tests/native/testing.h"

namespace sok::cpu {
namespace {

std::vector<Key> keys_from(Key first, std::int64_t count) {
  std::vector<Key> keys(count);
  for (std::int64_t i = 0; i < count; ++i) keys[i] = first + i;
  return keys;
}

class CapacityTest : public EveryHash {};
SOK_INSTANTIATE_FOR_EVERY_HASH(CapacityTest);

TEST_P(CapacityTest, GrowsManyTimesInOneCall) {
  const auto table = make_table(config(3, 16));
  const std::vector<Key> keys = keys_from(-5000, 10000);
  const std::vector<Row> rows = insert(*table, keys);
  ASSERT_EQ(table->size(), 10000);
  contents(*table);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(table->plane<float>(0).row(rows[i])[0], first_value(*table, keys[i]));
  }
  EXPECT_EQ(find(*table, keys), rows);
}

// Rows stay where they are: growth copies none.
TEST_P(CapacityTest, GrowthMovesNoRow) {
  const auto table = make_table(config(3, 16));
  const Row row = insert(*table, {42})[0];
  const float* const address = table->plane<float>(0).row(row);
  insert(*table, keys_from(100, sized(20000)));
  EXPECT_EQ(find(*table, {42})[0], row);
  EXPECT_EQ(table->plane<float>(0).row(row), address);
}

TEST_P(CapacityTest, AnyCapacityWorks) {
  for (const std::int64_t capacity : {1, 2, 13, 14, 15, 16, 17, 63, 64, 65, 100, 1000, 1023}) {
    const auto table = make_table(config(1, capacity));
    EXPECT_GE(table->row_limit(), capacity);
    for (Key key = 0; key < 40; ++key) insert(*table, {key});
    ASSERT_EQ(contents(*table).size(), 40u) << "capacity " << capacity;
  }
}

TEST_P(CapacityTest, ABoundedTableRefusesWhatDoesNotFit) {
  for (const std::int64_t bound : {1, 3, 14, 15, 1000}) {
    TableConfig bounded = config(1, 1);
    bounded.max_capacity = bound;
    const auto table = make_table(bounded);
    const std::vector<Key> keys = keys_from(0, bound);
    insert(*table, keys);
    ASSERT_EQ(table->size(), bound);
    insert(*table, keys);  // known keys always fit

    ThreadExecutor executor(2);
    const std::map<Key, Row> before = contents(*table);
    const std::int64_t bytes = table->bytes();
    const std::vector<Key> more = {0, -7, -7};
    const Status status = table->reserve(executor, {{more.data(), 3}});
    EXPECT_EQ(status.code(), Code::kResourceExhausted);
    EXPECT_NE(status.message().find(concat("it holds ", bound, " of at most ", bound)),
              std::string::npos)
        << status.message();
    EXPECT_EQ(contents(*table), before);
    EXPECT_EQ(table->bytes(), bytes);

    const Key first = 0;
    ASSERT_EQ(table->erase(&first, 1), 1);
    insert(*table, {-7});
    EXPECT_EQ(table->size(), bound);
    EXPECT_EQ(contents(*table).count(-7), 1u);
  }
}

TEST_P(CapacityTest, TwoFeaturesOfOneTableAreCountedTogether) {
  TableConfig bounded = config(1, 1);
  bounded.max_capacity = 4;
  const auto table = make_table(bounded);
  ThreadExecutor executor(1);
  const std::vector<Key> a = {1, 2, 3}, b = {3, 4}, c = {3, 4, 5};
  EXPECT_TRUE(table->reserve(executor, {{a.data(), 3}, {b.data(), 2}}).ok());
  EXPECT_EQ(table->reserve(executor, {{a.data(), 3}, {c.data(), 3}}).code(),
            Code::kResourceExhausted);
}

// Memory runs out at every allocation that a growing insertion makes, one after the other.
TEST_P(CapacityTest, WithoutMemoryTheTableIsAsItWas) {
  const std::vector<Key> known = keys_from(0, 50), wanted = keys_from(1000, 4000);
  std::int64_t failures = 0;
  for (std::int64_t left = 0;; ++left) {
    const auto memory = std::make_shared<LimitedAllocator>();
    const auto table = make_table(config(2, 16), memory);
    ASSERT_TRUE(table->attach_planes({{"state", 2, 0.25f}}).ok());
    const std::vector<Row> rows = insert(*table, known);
    const std::map<Key, Row> before = contents(*table);

    memory->left = left;
    ThreadExecutor executor(1);
    const Status status = table->reserve(executor, {{wanted.data(), 4000}});
    memory->left = 1 << 30;
    if (status.ok()) break;
    ++failures;
    EXPECT_EQ(status.code(), Code::kResourceExhausted);
    EXPECT_NE(status.message().find("table 'tested': no memory"), std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find("bytes asked for"), std::string::npos) << status.message();
    ASSERT_EQ(contents(*table), before);
    ASSERT_EQ(find(*table, known), rows);
    // With memory again, the same insertion works, and states are as they must be.
    for (Row row : insert(*table, wanted)) {
      ASSERT_EQ(table->plane<float>(1).row(row)[1], 0.25f);
    }
    ASSERT_EQ(contents(*table).size(), 4050u);
  }
  EXPECT_GT(failures, 5) << "the index and the slabs of two planes must grow";
}

TEST(CreationTest, WithoutMemoryThereIsNoTableAndNoLeak) {
  for (std::int64_t left = 0; left < 3; ++left) {
    const auto memory = std::make_shared<LimitedAllocator>();
    memory->left = left;
    std::unique_ptr<Table> table;
    const Status status = Table::create(config_of(4, 1000), memory, &table);
    EXPECT_EQ(status.code(), Code::kResourceExhausted);
    EXPECT_EQ(table, nullptr);
    EXPECT_EQ(memory->live, 0);
  }
}

TEST(CreationTest, AttachingWithoutMemoryAddsNoPlane) {
  const auto memory = std::make_shared<LimitedAllocator>();
  const auto table = make_table(config_of(4, 1000), memory);
  const std::int64_t bytes = memory->live;
  memory->left = 1;
  const Status status = table->attach_planes({{"m", 4, 0}, {"v", 4, 0}});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(table->plane_count(), 1);
  EXPECT_EQ(memory->live, bytes);
  memory->left = 1 << 30;
  EXPECT_TRUE(table->attach_planes({{"m", 4, 0}, {"v", 4, 0}}).ok());
  EXPECT_EQ(table->plane_count(), 3);
}

// A slot's number has 32 bits: an index that would need more is refused before any memory is asked
// for.
TEST(CreationTest, MoreRowsThanSlotNumbersAreRefused) {
  const auto memory = std::make_shared<LimitedAllocator>();
  memory->left = 0;
  std::unique_ptr<Table> table;
  EXPECT_EQ(Table::create(config_of(1, std::int64_t{3} << 30), memory, &table).code(),
            Code::kResourceExhausted);
  for (const std::int64_t rows : {std::int64_t{0xf0000000}, std::int64_t{1} << 32, kMost}) {
    const Status status = Table::create(config_of(1, rows), memory, &table);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << rows;
    EXPECT_NE(status.message().find(std::to_string(rows)), std::string::npos) << status.message();
  }
}

TEST(CreationTest, ADimensionBelowOneIsRefused) {
  std::unique_ptr<Table> table;
  const Status status = Table::create(config_of(0), page_allocator(), &table);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("got 0"), std::string::npos) << status.message();
}

TEST(SlabTest, LocateIsABijection) {
  for (const std::uint64_t first : {1, 2, 7, 8, 9, 64, 100, 1000, 1024, 5000}) {
    const SlabShape shape = SlabShape::for_rows(first);
    Row row = 0;
    for (std::uint32_t slab = 0; slab < 60 && row < 200000; ++slab) {
      const std::uint64_t rows = shape.rows_in(slab);
      ASSERT_GT(rows, 0u);
      for (std::uint32_t offset = 0; offset < rows; ++offset, ++row) {
        std::uint32_t found_slab, found_offset;
        shape.locate(row, &found_slab, &found_offset);
        ASSERT_EQ(found_slab, slab) << "row " << row << " of a table of " << first;
        ASSERT_EQ(found_offset, offset) << "row " << row << " of a table of " << first;
      }
    }
  }
}

// The last rows that a number of 32 bits can name.
TEST(SlabTest, TheLastRowHasAPlace) {
  for (const std::uint64_t first : {std::uint64_t{1}, std::uint64_t{64}, std::uint64_t{3} << 30}) {
    const SlabShape shape = SlabShape::for_rows(first);
    std::uint32_t last_slab, last_offset;
    shape.locate(kNoRow - 1, &last_slab, &last_offset);
    std::uint64_t before = 0;
    for (std::uint32_t slab = 0; slab < last_slab; ++slab) before += shape.rows_in(slab);
    EXPECT_EQ(before + last_offset, std::uint64_t{kNoRow} - 1);
    EXPECT_LT(last_offset, shape.rows_in(last_slab));
  }
}

// At most about an eighth of the rows is unused.
TEST(SlabTest, GrowthWastesAnEighth) {
  const SlabShape shape = SlabShape::for_rows(64);
  std::uint64_t rows = shape.rows_in(0);
  for (std::uint32_t slab = 1; slab < 100; ++slab) {
    EXPECT_LE(shape.rows_in(slab), rows / 8 + 1) << "slab " << slab;
    rows += shape.rows_in(slab);
  }
}

}  // namespace
}  // namespace sok::cpu
