// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// What the native tests share.
#ifndef SOK_TESTS_NATIVE_TESTING_H_
#define SOK_TESTS_NATIVE_TESTING_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cc_ops/cpu/executor.h"
#include "cc_ops/cpu/stages.h"
#include "cc_ops/cpu/table.h"

namespace sok::cpu {

constexpr Key kLeast = std::numeric_limits<Key>::min();
constexpr Key kMost = std::numeric_limits<Key>::max();

// Keys that implementations like to reserve.
inline const std::vector<Key>& sentinel_keys() {
  static const auto* keys = new std::vector<Key>{-1,
                                                 0,
                                                 1,
                                                 -2,
                                                 -3,
                                                 -4,
                                                 kLeast,
                                                 kLeast + 1,
                                                 kMost - 1,
                                                 kMost,
                                                 std::numeric_limits<std::int32_t>::min(),
                                                 std::numeric_limits<std::int32_t>::max()};
  return *keys;
}

inline TableConfig config_of(std::int64_t dimension, std::int64_t capacity = 16) {
  TableConfig config;
  config.name = "tested";
  config.dimension = dimension;
  config.capacity = capacity;
  config.initializer = {InitKind::kUniform, -1.0f, 1.0f, 7};
  return config;
}

inline std::unique_ptr<Table> make_table(TableConfig config,
                                         std::shared_ptr<Allocator> memory = page_allocator()) {
  std::unique_ptr<Table> table;
  const Status status = Table::create(std::move(config), std::move(memory), &table);
  EXPECT_TRUE(status.ok()) << status.message();
  return table;
}

// Gives the page allocator's memory until `left` allocations have been made.
class LimitedAllocator final : public Allocator {
 public:
  void* allocate(std::size_t bytes) override {
    if (left == 0) return nullptr;
    --left;
    live += static_cast<std::int64_t>(bytes);
    return page_allocator()->allocate(bytes);
  }
  void deallocate(void* memory, std::size_t bytes) override {
    live -= static_cast<std::int64_t>(bytes);
    page_allocator()->deallocate(memory, bytes);
  }
  std::int64_t left = 1 << 30;
  std::int64_t live = 0;
};

// One of the table's counters.
inline std::int64_t stat(const Table& table, const std::string& name) {
  for (const auto& [each, value] : table.stats()) {
    if (each == name) return value;
  }
  ADD_FAILURE() << "no counter " << name;
  return -1;
}

// Inserts what is not there; row numbers of all.
inline std::vector<Row> insert(Table& table, const std::vector<Key>& keys, int threads = 1) {
  ThreadExecutor executor(threads);
  const auto count = static_cast<std::int64_t>(keys.size());
  const Status status = table.reserve(executor, {{keys.data(), count}});
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<Row> rows(keys.size(), kNoRow);
  executor.parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
    table.find_or_insert(keys.data() + begin, end - begin, rows.data() + begin);
  });
  table.settle();
  return rows;
}

inline std::vector<Row> find(const Table& table, const std::vector<Key>& keys) {
  std::vector<Row> rows(keys.size());
  table.find(keys.data(), static_cast<std::int64_t>(keys.size()), rows.data());
  return rows;
}

// The whole index as a map; fails if a key or a row occurs twice.
inline std::map<Key, Row> contents(const Table& table) {
  std::vector<Key> keys;
  std::vector<Row> rows;
  table.entries(&keys, &rows);
  std::map<Key, Row> map;
  std::map<Row, Key> owner;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    EXPECT_TRUE(map.emplace(keys[i], rows[i]).second) << "key " << keys[i] << " occurs twice";
    EXPECT_TRUE(owner.emplace(rows[i], keys[i]).second)
        << "keys " << keys[i] << " and " << owner[rows[i]] << " share row " << rows[i];
  }
  EXPECT_EQ(static_cast<std::int64_t>(map.size()), table.size());
  return map;
}

// A step of an optimizer, its hyper-parameters by their names (the others are 0).
inline TableUpdate make_update(Table& table, const std::string& optimizer,
                               const std::map<std::string, float>& hyper) {
  TableUpdate update;
  update.table = &table;
  const Status status = find_optimizer(optimizer, &update.optimizer);
  EXPECT_TRUE(status.ok()) << status.message();
  std::size_t used = 0;
  for (const std::string& name : update.optimizer->hyper) {
    const auto given = hyper.find(name);
    update.hyper.push_back(given == hyper.end() ? 0.0f : given->second);
    used += given != hyper.end();
  }
  EXPECT_EQ(used, hyper.size()) << "an unknown hyper-parameter of " << optimizer;
  return update;
}

// The first value that the initializer gives a key: what tells rows apart.
inline float first_value(const Table& table, Key key) {
  return table.config().initializer.value(key, 0);
}

// Tests of the table run with the real hash, and with one under which all keys collide.
class EveryHash : public ::testing::TestWithParam<bool> {
 protected:
  TableConfig config(std::int64_t dimension, std::int64_t capacity = 16) const {
    TableConfig config = config_of(dimension, capacity);
    config.collide = GetParam();
    return config;
  }
  // Colliding keys make everything quadratic.
  std::int64_t sized(std::int64_t count) const { return GetParam() ? count / 8 : count; }
};

#define SOK_INSTANTIATE_FOR_EVERY_HASH(Suite)                               \
  INSTANTIATE_TEST_SUITE_P(Hash, Suite, ::testing::Bool(),                  \
                           [](const ::testing::TestParamInfo<bool>& info) { \
                             return info.param ? "AllCollide" : "Mixing";   \
                           })

// A generator whose seed is printed when a test fails.
struct Seeded {
  explicit Seeded(std::uint64_t seed) : generator(seed), trace(__FILE__, __LINE__, seed) {}
  std::mt19937_64 generator;
  // In [0, n).
  std::uint64_t below(std::uint64_t n) { return generator() % n; }

 private:
  struct Trace {
    Trace(const char* file, int line, std::uint64_t seed)
        : scoped(file, line, "random seed " + std::to_string(seed)) {}
    ::testing::ScopedTrace scoped;
  } trace;
};

}  // namespace sok::cpu

#endif  // SOK_TESTS_NATIVE_TESTING_H_
