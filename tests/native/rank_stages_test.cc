// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The stages of several ranks: what one rank computes for the others, against plain loops.
#include "cc_ops/cpu/rank_stages.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/native/testing.h"

namespace sok::cpu {
namespace {

// Enough ids for several parts and pieces on every number of threads tried.
constexpr std::int64_t kIds = 40000;
constexpr int kThreads[] = {1, 3};

std::vector<Key> draw(Seeded& random, std::int64_t count, std::uint64_t range) {
  std::vector<Key> ids(count);
  for (Key& id : ids) id = static_cast<Key>(random.below(range)) - 100;
  return ids;
}

TEST(DedupeTest, SlotsPointAtTheirKeys) {
  for (const int threads : kThreads) {
    for (const OutOfRange policy : {OutOfRange::kZero, OutOfRange::kClip}) {
      for (const std::int64_t rows : {std::int64_t{-1}, std::int64_t{7000}}) {
        Seeded random(1);
        ThreadExecutor executor(threads);
        std::vector<Key> a = draw(random, kIds, 9000), b = draw(random, 17, 9000);
        a.insert(a.end(), {kLeast, kMost, -1, 0});
        std::vector<std::int64_t> slots_a(a.size()), slots_b(b.size());
        const IdRange range{rows, policy};
        Dedupe dedupe(executor, range,
                      {{a.data(), static_cast<std::int64_t>(a.size()), slots_a.data()},
                       {b.data(), 17, slots_b.data()}});
        std::vector<Key> keys(dedupe.count());
        dedupe.write(keys.data());
        ASSERT_EQ(std::set<Key>(keys.begin(), keys.end()).size(), keys.size());
        std::set<Key> used;
        const auto check = [&](const std::vector<Key>& ids,
                               const std::vector<std::int64_t>& slots) {
          for (std::size_t i = 0; i < ids.size(); ++i) {
            Key wanted = ids[i];
            if (rows >= 0 && (wanted < 0 || wanted >= rows)) {
              if (policy == OutOfRange::kZero) {
                ASSERT_EQ(slots[i], -1) << ids[i];
                continue;
              }
              wanted = wanted < 0 ? 0 : rows - 1;
            }
            ASSERT_EQ(keys.at(slots[i]), wanted) << ids[i];
            used.insert(wanted);
          }
        };
        check(a, slots_a);
        check(b, slots_b);
        EXPECT_EQ(used.size(), keys.size()) << "a key that no id has";
      }
    }
  }
}

TEST(DedupeTest, TheFirstRefusedIdIsNamed) {
  ThreadExecutor executor(1);
  const std::vector<Key> a = {1, 2}, b = {0, 3, -1};
  std::vector<std::int64_t> slots_a(2), slots_b(3);
  Dedupe dedupe(executor, {3, OutOfRange::kError},
                {{a.data(), 2, slots_a.data()}, {b.data(), 3, slots_b.data()}});
  std::size_t feature;
  std::int64_t position;
  ASSERT_TRUE(dedupe.refused(&feature, &position));
  EXPECT_EQ(feature, 1u);
  EXPECT_EQ(position, 1);
}

TEST(DedupeTest, NoIdsAtAll) {
  ThreadExecutor executor(2);
  Dedupe dedupe(executor, {}, {{nullptr, 0, nullptr}});
  EXPECT_EQ(dedupe.count(), 0);
  dedupe.write(nullptr);
}

// Every key goes to its owner, once, in (rank, table) order, and finds its way back.
TEST(RouteTest, GroupsKeysByOwner) {
  for (const int threads : kThreads) {
    for (const std::uint32_t ranks : {1u, 2u, 3u, 8u}) {
      Seeded random(ranks);
      ThreadExecutor executor(threads);
      std::vector<std::vector<Key>> keys(4);
      for (std::int64_t i = 0; i < kIds; ++i) keys[0].push_back(i * 7919 - kIds);
      for (std::int64_t i = 0; i < 1000; ++i) keys[1].push_back(i);
      for (std::int64_t i = 0; i < 10; ++i) keys[3].push_back(i * 3);
      const std::vector<Placement> placements = {
          {ranks, -1, false},
          {ranks, -1, true},
          {ranks, -1, false},
          {ranks, static_cast<std::int32_t>(ranks) - 1, true}};
      std::vector<RouteTable> tables;
      std::vector<std::vector<std::int64_t>> positions;
      std::vector<std::int64_t*> position_pointers;
      for (std::size_t t = 0; t < 4; ++t) {
        tables.push_back(
            {placements[t], keys[t].data(), static_cast<std::int64_t>(keys[t].size())});
        positions.emplace_back(keys[t].size(), -1);
      }
      for (auto& table : positions) position_pointers.push_back(table.data());
      Route route(executor, ranks, tables);
      ASSERT_EQ(route.total(), kIds + 1010);
      std::vector<Key> ids(route.total());
      route.write(ids.data(), position_pointers);

      // Each table's ids out of the buffer, in the order of the ranks.
      std::vector<std::vector<std::pair<std::uint32_t, Key>>> travelled(4);
      std::size_t at = 0;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        for (std::size_t t = 0; t < 4; ++t) {
          for (std::int64_t n = route.counts()[rank * 4 + t]; n > 0; --n) {
            travelled[t].emplace_back(rank, ids.at(at++));
          }
        }
      }
      ASSERT_EQ(at, ids.size());
      for (std::size_t t = 0; t < 4; ++t) {
        ASSERT_EQ(travelled[t].size(), keys[t].size());
        std::set<std::int64_t> places(positions[t].begin(), positions[t].end());
        ASSERT_EQ(places.size(), keys[t].size());
        for (std::size_t i = 0; i < keys[t].size(); ++i) {
          const auto [rank, id] = travelled[t].at(positions[t][i]);
          ASSERT_EQ(rank, placements[t].rank_of(keys[t][i]));
          ASSERT_EQ(id, placements[t].local_id(keys[t][i]));
        }
      }
    }
  }
}

// What RouteBags must give, bag by bag.
struct Parts {
  std::vector<std::vector<Key>> ids;               // [ranks * tables]
  std::vector<std::vector<std::int64_t>> sources;  // of them
  std::vector<std::vector<std::int64_t>> lengths, targets;
};

Parts cut(std::uint32_t ranks, bool keep_empty, const std::vector<RouteBagsTable>& tables,
          const std::vector<RouteBagsFeature>& features) {
  Parts parts;
  const std::size_t blocks = ranks * tables.size();
  parts.ids.resize(blocks);
  parts.sources.resize(blocks);
  parts.lengths.resize(blocks);
  parts.targets.resize(blocks);
  std::vector<std::int64_t> bags_before(tables.size(), 0);
  std::int64_t ids_before = 0;
  for (const RouteBagsFeature& feature : features) {
    const RouteBagsTable& table = tables[feature.table];
    for (std::int64_t bag = 0; bag < feature.bags.bags; ++bag) {
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const std::size_t block = rank * tables.size() + feature.table;
        std::int64_t length = 0;
        for (std::int64_t i = feature.bags.begin(bag); i < feature.bags.end(bag); ++i) {
          Key key = feature.bags.ids[i];
          if (!table.range.target(&key) || table.placement.rank_of(key) != rank) continue;
          parts.ids[block].push_back(table.placement.local_id(key));
          parts.sources[block].push_back(ids_before + i);
          ++length;
        }
        if (length == 0 && !keep_empty) continue;
        parts.lengths[block].push_back(length);
        parts.targets[block].push_back(bags_before[feature.table] + bag);
      }
    }
    bags_before[feature.table] += feature.bags.bags;
    ids_before += feature.bags.ids_count();
  }
  return parts;
}

TEST(RouteBagsTest, EveryOwnerGetsItsPartOfEveryBag) {
  Seeded random(11);
  const std::vector<Key> many = draw(random, kIds, 5000), few = draw(random, 30, 12);
  std::vector<std::int64_t> splits = {0};
  while (splits.back() < kIds) {
    splits.push_back(std::min<std::int64_t>(kIds, splits.back() + random.below(40)));
  }
  Bags ragged, dense, none;
  ragged.ids = many.data();
  ragged.row_splits = splits.data();
  ragged.bags = static_cast<std::int64_t>(splits.size()) - 1;
  dense.ids = few.data();
  dense.bags = 10;
  dense.hotness = 3;
  for (const int threads : kThreads) {
    for (const std::uint32_t ranks : {1u, 2u, 3u, 8u}) {
      for (const bool keep_empty : {false, true}) {
        const std::vector<RouteBagsTable> tables = {
            {{ranks, -1, false}, {}},
            {{ranks, -1, true}, {7, OutOfRange::kZero}},
            {{ranks, static_cast<std::int32_t>(ranks) - 1, true}, {9, OutOfRange::kClip}}};
        const std::vector<RouteBagsFeature> features = {
            {0, ragged}, {1, dense}, {0, dense}, {2, none}, {2, dense}};
        ThreadExecutor executor(threads);
        RouteBags route(executor, ranks, keep_empty, tables, features);
        const Parts parts = cut(ranks, keep_empty, tables, features);
        std::vector<std::int64_t> counts, buffer, sources;
        std::vector<std::vector<std::int64_t>> targets(3);
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
          for (const auto* of : {&parts.ids, &parts.lengths}) {
            for (std::size_t t = 0; t < 3; ++t) {
              const auto& block = (*of)[rank * 3 + t];
              counts.push_back(static_cast<std::int64_t>(block.size()));
              buffer.insert(buffer.end(), block.begin(), block.end());
            }
          }
          for (std::size_t t = 0; t < 3; ++t) {
            const std::size_t block = rank * 3 + t;
            sources.insert(sources.end(), parts.sources[block].begin(), parts.sources[block].end());
            targets[t].insert(targets[t].end(), parts.targets[block].begin(),
                              parts.targets[block].end());
          }
        }
        ASSERT_EQ(route.counts(), counts);
        ASSERT_EQ(route.ids(), static_cast<std::int64_t>(sources.size()));
        std::vector<std::int64_t> got(buffer.size(), -7), got_sources(sources.size(), -7);
        std::vector<std::vector<std::int64_t>> got_targets;
        std::vector<std::int64_t*> pointers;
        for (std::size_t t = 0; t < 3; ++t) {
          ASSERT_EQ(route.parts(t), static_cast<std::int64_t>(targets[t].size()));
          got_targets.emplace_back(targets[t].size(), -7);
        }
        for (auto& table : got_targets) pointers.push_back(table.data());
        route.write(got.data(), pointers, got_sources.data());
        EXPECT_EQ(got, buffer);
        EXPECT_EQ(got_sources, sources);
        EXPECT_EQ(got_targets, targets);
      }
    }
  }
}

TEST(RouteBagsTest, TheFirstRefusedIdIsNamed) {
  ThreadExecutor executor(1);
  const std::vector<Key> ids = {1, 2, 3, -1};
  Bags bags;
  bags.ids = ids.data();
  bags.bags = 2;
  bags.hotness = 2;
  const IdRange error{3, OutOfRange::kError}, zero{3, OutOfRange::kZero};
  RouteBags route(executor, 2, false, {{{2, -1, true}, zero}, {{2, -1, true}, error}},
                  {{0, bags}, {1, bags}});
  std::size_t feature;
  std::int64_t position;
  ASSERT_TRUE(route.refused(&feature, &position));
  EXPECT_EQ(feature, 1u);
  EXPECT_EQ(position, 2);
}

TEST(PlacementTest, RowsOfAStaticTableAreDealtOut) {
  const Placement distributed{3, -1, true}, localized{3, 1, true};
  for (Key id = 0; id < 30; ++id) {
    EXPECT_EQ(distributed.rank_of(id), id % 3);
    EXPECT_EQ(distributed.local_id(id), id / 3);
    EXPECT_EQ(localized.rank_of(id), 1u);
    EXPECT_EQ(localized.local_id(id), id);
  }
}

TEST(PlacementTest, KeysOfAHashTableAreSpreadEvenly) {
  const Placement placement{8, -1, false};
  std::vector<int> keys(8);
  for (Key key = 0; key < 80000; ++key) ++keys[placement.rank_of(key)];
  for (int count : keys) EXPECT_NEAR(count, 10000, 500);
  for (Key key : sentinel_keys()) EXPECT_LT(placement.rank_of(key), 8u);
}

TEST(ExchangeTest, InterleavingIsUndoneByDeinterleaving) {
  for (const int threads : kThreads) {
    Seeded random(4);
    ThreadExecutor executor(threads);
    // One block longer than what is copied at once, and empty ones.
    const std::vector<std::int64_t> counts = {5, 0, 40000, 0, 3, 1, 7, 7, 0};
    const std::vector<std::int64_t> row_bytes = {4, 16, 12};
    std::vector<std::vector<char>> parts(3), back(3);
    std::vector<ExchangePart> from, to;
    std::int64_t total = 0;
    for (std::size_t t = 0; t < 3; ++t) {
      const std::int64_t bytes = (counts[t] + counts[3 + t] + counts[6 + t]) * row_bytes[t];
      total += bytes;
      parts[t].resize(bytes);
      for (char& byte : parts[t]) byte = static_cast<char>(random.below(256));
      back[t].assign(bytes, 0);
      from.push_back({parts[t].data(), row_bytes[t]});
      to.push_back({back[t].data(), row_bytes[t]});
    }
    std::vector<char> buffer(total);
    interleave(executor, from, counts.data(), 3, buffer.data());
    // The first block of rank 1 is table 1's (table 0 has none): its bytes follow rank 0's.
    const std::int64_t rank_0 = 5 * 4 + 40000 * 12;
    EXPECT_TRUE(std::equal(parts[1].begin(), parts[1].begin() + 48, buffer.begin() + rank_0));
    deinterleave(executor, buffer.data(), counts.data(), 3, to);
    EXPECT_EQ(back, parts);
  }
}

// Rows that were fetched once and combined here give what a lookup in the table itself gives.
TEST(CombineTest, EqualsALookupOfOneRank) {
  constexpr std::int64_t kBags = 2000, kHotness = 4, kWidth = 9;
  Seeded random(8);
  const std::vector<Key> ids = draw(random, kBags * kHotness, 700);
  std::vector<float> weights(ids.size()), gradient(kBags * kWidth);
  for (float& w : weights) w = static_cast<float>(random.below(17)) / 4.0f - 2.0f;
  for (float& g : gradient) g = static_cast<float>(random.below(2001)) / 1000.0f - 1.0f;
  for (const Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn}) {
    for (const int threads : kThreads) {
      ThreadExecutor executor(threads);
      const auto table = make_table(config_of(kWidth));
      Bags bags;
      bags.ids = ids.data();
      bags.weights = weights.data();
      bags.bags = kBags;
      bags.hotness = kHotness;
      bags.combiner = combiner;
      std::vector<float> expected(kBags * kWidth), got(kBags * kWidth, NAN);
      LookupFeature whole;
      whole.table = table.get();
      whole.bags = bags;
      whole.output = {RowType::kFloat32, expected.data()};
      ASSERT_TRUE(lookup(executor, {whole}, true).ok());

      std::vector<std::int64_t> slots(ids.size());
      Dedupe dedupe(executor, {}, {{ids.data(), kBags * kHotness, slots.data()}});
      std::vector<Key> keys(dedupe.count());
      dedupe.write(keys.data());
      const std::vector<Row> numbers = find(*table, keys);
      std::vector<float> rows(keys.size() * kWidth);
      read_plane(executor, *table, 0, numbers.data(), dedupe.count(), rows.data());
      CombineFeature feature;
      feature.rows = {RowType::kFloat32, rows.data()};
      feature.row_count = dedupe.count();
      feature.width = kWidth;
      feature.bags = bags;
      feature.bags.ids = slots.data();
      feature.output = {RowType::kFloat32, got.data()};
      combine(executor, {feature});
      EXPECT_EQ(got, expected);

      // Backward: the gradients of rows, and of weights.
      MergeFeature merge_feature;
      merge_feature.bags = bags;
      merge_feature.gradient = {RowType::kFloat32, gradient.data()};
      Merge merge(executor, *table, {merge_feature}, kWidth);
      std::vector<Key> merged_keys(merge.count());
      std::vector<float> merged(merge.count() * kWidth), row_gradients(keys.size() * kWidth, NAN);
      merge.write(executor, merged_keys.data(), merged.data());
      feature.output.data = gradient.data();
      combine_row_gradients(executor, {feature}, dedupe.count(), kWidth, row_gradients.data());
      std::map<Key, std::vector<float>> by_key, merged_by_key;
      for (std::size_t k = 0; k < keys.size(); ++k) {
        const float* row = row_gradients.data() + k * kWidth;
        by_key[keys[k]].assign(row, row + kWidth);
      }
      for (std::size_t k = 0; k < merged_keys.size(); ++k) {
        const float* row = merged.data() + k * kWidth;
        merged_by_key[merged_keys[k]].assign(row, row + kWidth);
      }
      EXPECT_EQ(by_key, merged_by_key);

      std::vector<float> weight_gradients_here(ids.size()), weight_gradients_there(ids.size());
      combine_weight_gradients(executor, feature, weight_gradients_here.data());
      ASSERT_TRUE(
          weight_gradients(executor, whole, gradient.data(), weight_gradients_there.data()).ok());
      EXPECT_EQ(weight_gradients_here, weight_gradients_there);
    }
  }
}

}  // namespace
}  // namespace sok::cpu
