// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Rows from elsewhere come with their planes, or nothing changes.
#include <cmath>
#include <new>

#include "cc_ops/cpu/snapshot.h"
#include "tests/native/testing.h"

namespace sok::cpu {
namespace {

class ImportTest : public EveryHash {};
SOK_INSTANTIATE_FOR_EVERY_HASH(ImportTest);

// Keys with their values and the state "adagrad.accumulator".
struct Rows {
  std::vector<Key> keys;
  std::vector<float> values, state;

  Rows(Key first, std::int64_t count, std::int64_t width) {
    for (std::int64_t i = 0; i < count; ++i) keys.push_back(first + i);
    for (std::int64_t i = 0; i < count * width; ++i) {
      values.push_back(static_cast<float>(first) + static_cast<float>(i));
      state.push_back(1000.0f + static_cast<float>(i));
    }
  }
  std::vector<PlaneValues> planes(std::int64_t width, float initial = 0.25f) const {
    return {{{"values", width, 0}, values.data()},
            {{"adagrad.accumulator", width, initial}, state.data()}};
  }
};

Status load(Table& table, const Rows& rows, bool replace, const std::vector<PlaneValues>& planes,
            int threads = 1) {
  ThreadExecutor executor(threads);
  return import_rows(executor, table, rows.keys.data(), static_cast<std::int64_t>(rows.keys.size()),
                     replace, planes);
}

// Key -> its row in every plane.
std::map<Key, std::vector<float>> everything(const Table& table) {
  std::map<Key, std::vector<float>> result;
  for (const auto& [key, row] : contents(table)) {
    for (int p = 0; p < table.plane_count(); ++p) {
      const float* values = table.plane<float>(p).row(row);
      result[key].insert(result[key].end(), values, values + table.plane_spec(p).width);
    }
  }
  return result;
}

void expect_rows(const Table& table, const Rows& rows, std::int64_t width) {
  const auto found = everything(table);
  for (std::size_t i = 0; i < rows.keys.size(); ++i) {
    std::vector<float> expected(rows.values.begin() + i * width,
                                rows.values.begin() + (i + 1) * width);
    expected.insert(expected.end(), rows.state.begin() + i * width,
                    rows.state.begin() + (i + 1) * width);
    ASSERT_EQ(found.at(rows.keys[i]), expected) << "key " << rows.keys[i];
  }
}

TEST_P(ImportTest, WritesNewRowsAndOldOnes) {
  for (const int threads : {1, 4}) {
    const auto table = make_table(config(3));
    insert(*table, {5, 2000});
    const Rows rows(0, sized(1000), 3);
    ASSERT_TRUE(load(*table, rows, false, rows.planes(3), threads).ok());
    expect_rows(*table, rows, 3);
    EXPECT_EQ(table->size(), sized(1000) + 1);
    // What the others start with.
    EXPECT_EQ(everything(*table)[2000][3], 0.25f);
    const Rows others(-7, 5, 3);
    ASSERT_TRUE(load(*table, others, true, others.planes(3), threads).ok());
    expect_rows(*table, others, 3);
    EXPECT_EQ(table->size(), 5);
  }
}

TEST_P(ImportTest, WithoutMemoryNothingChanges) {
  for (const bool replace : {false, true}) {
    const Rows rows(100, sized(2000), 2);
    int failures = 0;
    for (std::int64_t left = 0;; ++left) {
      const auto memory = std::make_shared<LimitedAllocator>();
      const auto table = make_table(config(2, 16), memory);
      insert(*table, {1, 2, 100});
      const auto before = everything(*table);
      memory->left = left;
      const Status status = load(*table, rows, replace, rows.planes(2));
      memory->left = 1 << 30;
      if (status.ok()) {
        expect_rows(*table, rows, 2);
        break;
      }
      ++failures;
      EXPECT_EQ(status.code(), Code::kResourceExhausted);
      EXPECT_NE(status.message().find("it is unchanged"), std::string::npos) << status.message();
      ASSERT_EQ(table->plane_count(), 1);
      ASSERT_EQ(everything(*table), before);
      ASSERT_TRUE(load(*table, rows, replace, rows.planes(2)).ok());
      expect_rows(*table, rows, 2);
      ASSERT_EQ(table->size(), sized(2000) + (replace ? 0 : 2));
    }
    EXPECT_GT(failures, 3) << "the index, slabs and a plane need memory";
  }
}

TEST_P(ImportTest, RowsThatDoNotFitLeaveNoPlane) {
  TableConfig bounded = config(2);
  bounded.max_capacity = 10;
  const auto table = make_table(bounded);
  insert(*table, {1, 2});
  const auto before = everything(*table);
  const Rows many(0, 11, 2), enough(0, 10, 2);
  for (const bool replace : {false, true}) {
    const Status status = load(*table, many, replace, many.planes(2));
    EXPECT_EQ(status.code(), Code::kResourceExhausted);
    EXPECT_EQ(table->plane_count(), 1);
    EXPECT_EQ(everything(*table), before);
  }
  ASSERT_TRUE(load(*table, enough, false, enough.planes(2)).ok());
  expect_rows(*table, enough, 2);
}

TEST(ImportPlanesTest, StatesThatNoOptimizerHasAreRefused) {
  const Rows rows(0, 4, 8);
  struct Case {
    PlaneSpec spec;
    const char* message;
  };
  for (const Case& bad : std::vector<Case>{
           {{"adagrad.accumulator", 1, 0}, "plane 'adagrad.accumulator' has width 4, not 1"},
           {{"adagrad.accumulator", 8, 0}, "plane 'adagrad.accumulator' has width 4, not 8"},
           {{"rowwise_adagrad.accumulator", 4, 0}, "has width 1, not 4"},
           {{"adam.v", 4, std::nanf("")}, "'adam.v' must start at a finite number, got nan"},
           {{"mine", 4, HUGE_VALF}, "'mine' must start at a finite number, got inf"},
       }) {
    const auto table = make_table(config_of(4));
    insert(*table, {1, 2});
    const auto before = everything(*table);
    // A right plane stands before the wrong one.
    const Status status = load(*table, rows, true,
                               {{{"values", 4, 0}, rows.values.data()},
                                {{"adam.m", 4, 0}, rows.state.data()},
                                {bad.spec, rows.state.data()}});
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find(bad.message), std::string::npos) << status.message();
    EXPECT_EQ(table->plane_count(), 1);
    EXPECT_EQ(everything(*table), before);
  }
}

TEST(ImportPlanesTest, PlanesCanBeTakenBack) {
  const auto table = make_table(config_of(2));
  insert(*table, {1, 2});
  ASSERT_TRUE(table->attach_planes({{"adam.m", 2, 0}}).ok());
  const auto before = everything(*table);
  ASSERT_TRUE(table->attach_planes({{"adam.v", 2, 7}, {"mine", 1, 0}}).ok());
  const auto snapshot = table->snapshot({0, 1}, 0, 0);
  EXPECT_TRUE(table->has_snapshots_of(1));
  EXPECT_FALSE(table->has_snapshots_of(2));
  table->detach_planes(2);
  EXPECT_EQ(everything(*table), before);
  ASSERT_TRUE(table->attach_planes({{"adam.v", 2, 0.5f}}).ok());
  EXPECT_EQ(everything(*table)[1][4], 0.5f);
}

}  // namespace
}  // namespace sok::cpu
