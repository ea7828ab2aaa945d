// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// A snapshot gives the table of its moment, whatever happens between its pieces.
#include "cc_ops/cpu/snapshot.h"

#include <algorithm>
#include <functional>
#include <map>
#include <new>

#include "tests/native/testing.h"

namespace sok::cpu {
namespace {

using Contents = std::map<Key, std::vector<float>>;

class SnapshotTest : public EveryHash {};
SOK_INSTANTIATE_FOR_EVERY_HASH(SnapshotTest);

// Key -> values and state.
Contents read_all(const Table& table) {
  std::vector<Key> keys;
  std::vector<Row> rows;
  table.entries(&keys, &rows);
  ThreadExecutor executor(1);
  Contents result;
  for (int p = 0; p < table.plane_count(); ++p) {
    const std::int64_t width = table.plane_spec(p).width;
    std::vector<float> values(rows.size() * width);
    read_plane(executor, table, p, rows.data(), static_cast<std::int64_t>(rows.size()),
               values.data());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      result[keys[i]].insert(result[keys[i]].end(), values.begin() + i * width,
                             values.begin() + (i + 1) * width);
    }
  }
  return result;
}

// The next piece; false: there is none. Fails if a key comes twice.
bool read_piece(const Table& table, Snapshot& snapshot, std::int64_t limit, Contents* result) {
  ThreadExecutor executor(2);
  std::vector<Key> keys;
  std::vector<Row> rows;
  snapshot.next(limit, &keys, &rows);
  for (Key key : keys) EXPECT_EQ(result->count(key), 0u) << "key " << key << " comes twice";
  for (std::size_t p = 0; p < snapshot.planes().size(); ++p) {
    const std::int64_t width = table.plane_spec(snapshot.planes()[p]).width;
    std::vector<float> values(rows.size() * width);
    snapshot.read(executor, table, p, rows, values.data());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      auto& row = (*result)[keys[i]];
      row.insert(row.end(), values.begin() + i * width, values.begin() + (i + 1) * width);
    }
  }
  snapshot.done(rows);
  return !keys.empty();
}

void step(Table& table, const std::vector<Key>& keys, float gradient) {
  ThreadExecutor executor(2);
  TableUpdate update = make_update(table, "adagrad", {{"learning_rate", 0.1f}, {"epsilon", 1e-3f}});
  const std::vector<float> gradients(keys.size() * table.config().dimension, gradient);
  update.keys = keys.data();
  update.gradients = gradients.data();
  update.count = static_cast<std::int64_t>(keys.size());
  update.unique = false;
  std::vector<TableUpdate> updates{update};
  const Status status = sok::cpu::update(executor, updates, 1, 1.0f);
  ASSERT_TRUE(status.ok()) << status.message();
}

TEST_P(SnapshotTest, HoldsItsMomentUnderRandomChanges) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Seeded random(seed);
    TableConfig config = this->config(5);
    config.row_type = seed % 2 == 0 ? RowType::kBFloat16 : RowType::kFloat32;
    const auto table = make_table(config);
    const auto draw = [&](std::int64_t count) {
      std::vector<Key> keys(count);
      for (Key& key : keys) key = static_cast<Key>(random.below(2 * sized(2000))) - sized(2000);
      return keys;
    };
    insert(*table, draw(sized(2000)));
    insert(*table, sentinel_keys());
    step(*table, draw(500), 0.5f);
    const std::vector<Key> gone = draw(200);
    table->erase(gone.data(), 200);

    const Contents expected = read_all(*table);
    const auto snapshot = table->snapshot({0, 1}, 0, 0);
    const auto second = table->snapshot({1}, 0, 0);
    EXPECT_EQ(snapshot->rows(), static_cast<std::int64_t>(expected.size()));
    Contents found, found_states;
    bool more = true;
    while (more) {
      more =
          read_piece(*table, *snapshot, 1 + static_cast<std::int64_t>(random.below(200)), &found);
      switch (random.below(6)) {
        case 0:
          insert(*table, draw(sized(800)));  // grows the index now and then
          break;
        case 1: {
          const std::vector<Key> keys = draw(300);
          table->erase(keys.data(), 300);
          break;
        }
        case 2:
          step(*table, draw(300), 1.0f);
          break;
        case 3:
          if (random.below(20) == 0) table->clear();
          break;
        case 4: {  // erased and inserted again, perhaps in the same slot and row
          const std::vector<Key> keys = draw(100);
          table->erase(keys.data(), 100);
          insert(*table, keys);
          step(*table, keys, 2.0f);
          break;
        }
        default:
          break;
      }
    }
    while (read_piece(*table, *second, 64, &found_states)) {
    }
    ASSERT_EQ(found, expected);
    Contents states;
    for (const auto& [key, row] : expected) states[key] = {row.begin() + 5, row.end()};
    ASSERT_EQ(found_states, states);
  }
}

TEST(Snapshot, OfAPartOfAStaticTable) {
  TableConfig config = config_of(3);
  config.rows = 100;
  const auto table = make_table(config);
  ThreadExecutor executor(1);
  table->initialize_static(executor);
  const Contents all = read_all(*table);
  Contents found;
  for (std::int64_t part = 0; part < 3; ++part) {
    const auto snapshot = table->snapshot({0}, 100 * part / 3, 100 * (part + 1) / 3);
    std::vector<Key> keys(100);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i);
    step(*table, keys, 1.0f);
    Contents piece;
    while (read_piece(*table, *snapshot, 10, &piece)) {
    }
    EXPECT_EQ(static_cast<std::int64_t>(piece.size()), 100 * (part + 1) / 3 - 100 * part / 3);
    if (part == 0) found = piece;
  }
  for (const auto& [key, row] : found) EXPECT_EQ(row, all.at(key)) << "key " << key;
}

TEST(Snapshot, CopiesOnlyWhatIsWrittenBeforeItIsRead) {
  const auto table = make_table(config_of(64, 20000));
  std::vector<Key> keys(20000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i);
  insert(*table, keys);
  step(*table, {0}, 1.0f);
  const auto snapshot = table->snapshot({0, 1}, 0, 0);
  EXPECT_LT(snapshot->bytes(), 20000);  // two bits a row, about
  step(*table, {keys.begin(), keys.begin() + 100}, 1.0f);
  step(*table, {keys.begin(), keys.begin() + 100}, 1.0f);
  EXPECT_EQ(snapshot->preserved_rows(), 100);
  Contents found;
  while (read_piece(*table, *snapshot, 1000, &found)) {
  }
  step(*table, keys, 1.0f);
  EXPECT_EQ(snapshot->preserved_rows(), 100);
  EXPECT_EQ(found.size(), keys.size());
}

TEST(Snapshot, GivesAsManyRowsAsAreAskedFor) {
  const auto table = make_table(config_of(2));
  std::vector<Key> keys(1000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i);
  insert(*table, keys);
  const auto snapshot = table->snapshot({0}, 0, 0);
  Contents found;
  for (const std::size_t wanted : {1, 2, 64, 3, 129}) {
    const std::size_t before = found.size();
    ASSERT_TRUE(read_piece(*table, *snapshot, static_cast<std::int64_t>(wanted), &found));
    EXPECT_EQ(found.size() - before, wanted);
    // Some of them are forgotten while their neighbours in the index are still to be read.
    table->erase(keys.data(), static_cast<std::int64_t>(found.size()));
  }
  while (read_piece(*table, *snapshot, 7, &found)) {
  }
  EXPECT_EQ(found.size(), keys.size());
}

class NoMemory final : public Executor {
 public:
  int threads() const override { return 1; }
  void parallel_for(std::int64_t, std::int64_t,
                    const std::function<void(std::int64_t, std::int64_t)>&) override {
    throw std::bad_alloc();
  }
};

TEST(Snapshot, KeepsItsMomentWhenThereWasNoMemoryForACopy) {
  const auto table = make_table(config_of(4));
  const std::vector<Key> keys{1, 2, 3, 4};
  const std::vector<Row> rows = insert(*table, keys);
  const Contents expected = read_all(*table);
  const auto snapshot = table->snapshot({0}, 0, 0);
  NoMemory failing;
  EXPECT_THROW(snapshot->preserve(failing, *table, rows.data(), 2), std::bad_alloc);
  Contents found;
  ASSERT_TRUE(read_piece(*table, *snapshot, 1, &found));
  step(*table, keys, 1.0f);
  while (read_piece(*table, *snapshot, 1, &found)) {
  }
  EXPECT_EQ(found, expected);
}

TEST(Snapshot, ThatIsGoneCostsNothing) {
  const auto table = make_table(config_of(4));
  insert(*table, {1, 2, 3});
  auto snapshot = table->snapshot({0}, 0, 0);
  const std::weak_ptr<Snapshot> watched = snapshot;
  snapshot.reset();
  EXPECT_TRUE(watched.expired());
  step(*table, {1, 2}, 1.0f);
}

}  // namespace
}  // namespace sok::cpu
