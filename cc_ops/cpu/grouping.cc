// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/grouping.h"

#include <algorithm>

#include "cc_ops/core/dedupe.h"
#include "cc_ops/core/hash.h"

namespace sok::cpu {
namespace {

// Below this many ids a second thread costs more than it brings.
constexpr std::int64_t kIdsAChunk = 4096;
// Ids of a part: its map of keys and what it sorts stay in the cache.
constexpr std::int64_t kIdsAPart = 4096;
constexpr std::int64_t kMostParts = 0xffff;
constexpr std::uint16_t kNoPart = 0xffff;
// A table with fewer ids is one thread's.
constexpr std::int64_t kSmallBatch = 16384;
// Shares have 32 bits for the numbers of bags and of ids.
constexpr std::int64_t kMostIds = 0xffffffff;

IdRange range_of(const Table& table) { return {table.config().rows, table.config().out_of_range}; }

bool same(const Bags& a, const Bags& b) {
  return a.ids == b.ids && a.weights == b.weights && a.row_splits == b.row_splits &&
         a.bags == b.bags && a.hotness == b.hotness && a.combiner == b.combiner &&
         a.ids_count() == b.ids_count();
}

}  // namespace

Grouping::Grouping(Executor& executor, const Table& table, std::vector<Bags> features)
    : table_(table), features_(std::move(features)), parts_(1) {
  std::vector<BagTask> tasks;
  std::int64_t ids = 0;
  for (std::size_t f = 0; f < features_.size(); ++f) {
    if (std::max(features_[f].bags, features_[f].ids_count()) > kMostIds) return;  // see check()
    split_bags(f, features_[f], &tasks);
    ids += features_[f].ids_count();
  }
  const auto task_count = static_cast<std::int64_t>(tasks.size());
  const std::int64_t chunk_count =
      std::clamp<std::int64_t>(std::min(ids / kIdsAChunk, task_count), 1, executor.threads());
  const std::int64_t part_count = std::clamp<std::int64_t>(ids / kIdsAPart, 1, kMostParts);
  parts_.resize(part_count);
  std::vector<Chunk> chunks(chunk_count);
  executor.parallel_for(
      chunk_count, ids * 8 / chunk_count, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t c = begin; c < end; ++c) {
          distribute(tasks.data() + task_count * c / chunk_count,
                     tasks.data() + task_count * (c + 1) / chunk_count, &chunks[c]);
        }
      });
  executor.parallel_for(part_count, ids * 8 / part_count,
                        [&](std::int64_t begin, std::int64_t end) {
                          KeyMap numbers(0);
                          for (std::int64_t p = begin; p < end; ++p) {
                            number_keys(chunks, static_cast<std::size_t>(p), &numbers);
                          }
                        });
  for (const Chunk& chunk : chunks) dropped_ |= chunk.dropped;
  for (Part& part : parts_) {
    part.first = count_;
    count_ += part.count();
  }
}

void Grouping::distribute(const BagTask* first, const BagTask* last, Chunk* chunk) const {
  const IdRange range = range_of(table_);
  const auto parts = static_cast<std::uint32_t>(parts_.size());
  std::int64_t ids = 0;
  for (const BagTask* task = first; task != last; ++task) {
    const Bags& bags = features_[task->feature];
    ids += bags.begin(task->last_bag) - bags.begin(task->first_bag);
  }
  // Sorting by counting keeps the order of the batch within a part.
  std::unique_ptr<std::uint16_t[]> part_of(new std::uint16_t[ids]);
  chunk->begin.assign(parts + 1, 0);
  std::int64_t at = 0;
  for (const BagTask* task = first; task != last; ++task) {
    const Bags& bags = features_[task->feature];
    for (std::int64_t i = bags.begin(task->first_bag); i < bags.begin(task->last_bag); ++i, ++at) {
      Key key = bags.ids[i];
      if (!range.target(&key)) {
        chunk->dropped = true;
        part_of[at] = kNoPart;
        continue;
      }
      const std::uint32_t part = scale_to(mix64(static_cast<std::uint64_t>(key)), parts);
      part_of[at] = static_cast<std::uint16_t>(part);
      ++chunk->begin[part + 1];
    }
  }
  for (std::uint32_t p = 0; p < parts; ++p) chunk->begin[p + 1] += chunk->begin[p];
  std::vector<std::uint32_t> next(chunk->begin.begin(), chunk->begin.end() - 1);
  chunk->entries.reset(new Entry[chunk->begin[parts]]);
  at = 0;
  for (const BagTask* task = first; task != last; ++task) {
    const Bags& bags = features_[task->feature];
    for (std::int64_t bag = task->first_bag; bag < task->last_bag; ++bag) {
      const std::int64_t begin = bags.begin(bag), end = bags.end(bag);
      if (begin == end) continue;
      const float scale = bags.scale(bag);
      for (std::int64_t i = begin; i < end; ++i, ++at) {
        if (part_of[at] == kNoPart) continue;
        Entry& entry = chunk->entries[next[part_of[at]]++];
        entry.key = bags.ids[i];
        range.target(&entry.key);
        entry.share.feature = static_cast<std::uint32_t>(task->feature);
        entry.share.bag = static_cast<std::uint32_t>(bag);
        entry.share.id = static_cast<std::uint32_t>(i);
        // A divisor of 0: the ids still belong to the batch, with a zero gradient.
        entry.share.scale = scale == 0.0f ? 0.0f : scale * bags.weight(i);
      }
    }
  }
}

void Grouping::number_keys(const std::vector<Chunk>& chunks, std::size_t number, KeyMap* numbers) {
  std::int64_t count = 0;
  for (const Chunk& chunk : chunks) count += chunk.begin[number + 1] - chunk.begin[number];
  numbers->reset(count);
  std::unique_ptr<std::uint32_t[]> key_of(new std::uint32_t[count]);
  Part& part = parts_[number];
  std::int64_t at = 0;
  for (const Chunk& chunk : chunks) {
    for (std::uint32_t e = chunk.begin[number]; e < chunk.begin[number + 1]; ++e, ++at) {
      const Key key = chunk.entries[e].key;
      key_of[at] = numbers->number(key, mix64(static_cast<std::uint64_t>(key)));
    }
  }
  part.keys = numbers->keys();
  // Shares by key, in the order of the batch: begin[i + 1] is where key i's next share goes, and in
  // the end where they stop.
  part.begin.assign(part.keys.size() + 2, 0);
  for (std::int64_t i = 0; i < count; ++i) ++part.begin[key_of[i] + 2];
  for (std::size_t i = 2; i < part.begin.size(); ++i) part.begin[i] += part.begin[i - 1];
  part.shares.reset(new Share[count]);
  at = 0;
  for (const Chunk& chunk : chunks) {
    for (std::uint32_t e = chunk.begin[number]; e < chunk.begin[number + 1]; ++e, ++at) {
      part.shares[part.begin[key_of[at] + 1]++] = chunk.entries[e].share;
    }
  }
}

std::vector<IdSpan> Grouping::keys() const {
  std::vector<IdSpan> spans;
  for (const Part& part : parts_) spans.push_back({part.keys.data(), part.count()});
  return spans;
}

Status Grouping::check() const {
  for (std::size_t f = 0; f < features_.size(); ++f) {
    const std::int64_t most = std::max(features_[f].bags, features_[f].ids_count());
    if (most <= kMostIds) continue;
    return invalid_argument("table '", table_.config().name, "': ", most,
                            " bags or ids in one call, at most ", kMostIds,
                            " of a feature are possible");
  }
  if (!dropped_) return {};
  for (const Bags& bags : features_) {
    SOK_RETURN_IF_ERROR(table_.check_range(bags.ids, bags.ids_count()));
  }
  return {};
}

void Grouping::find_or_insert(std::size_t number, Table* table, Row* const* rows) {
  Part& part = parts_[number];
  part.rows.resize(part.keys.size());
  table->find_or_insert_distinct(part.keys.data(), part.count(), part.rows.data());
  const Share* share = part.shares.get();
  for (std::size_t i = 0; i < part.rows.size(); ++i) {
    for (const Share* end = part.shares.get() + part.begin[i + 1]; share != end; ++share) {
      rows[share->feature][share->id] = part.rows[i];
    }
  }
}

bool Grouping::is_of(const std::vector<Bags>& features) const {
  return kept() &&
         std::equal(features.begin(), features.end(), features_.begin(), features_.end(), same);
}

std::shared_ptr<const Grouping> grouping_of(Executor& executor, const Table& table,
                                            const std::vector<Bags>& features) {
  const std::shared_ptr<const Grouping>& kept = table.grouping();
  if (kept != nullptr && kept->is_of(features)) return kept;
  return std::make_shared<Grouping>(executor, table, features);
}

void for_each_table(Executor& executor, const std::vector<std::int64_t>& ids,
                    const std::function<void(std::size_t, Executor&)>& body) {
  std::vector<std::size_t> small;
  std::int64_t small_ids = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= kSmallBatch) {
      body(i, executor);
    } else {
      small.push_back(i);
      small_ids += ids[i];
    }
  }
  const auto count = static_cast<std::int64_t>(small.size());
  executor.parallel_for(count, small_ids * 16 / std::max<std::int64_t>(1, count) + 1000,
                        [&](std::int64_t begin, std::int64_t end) {
                          ThreadExecutor alone(1);
                          for (std::int64_t i = begin; i < end; ++i) body(small[i], alone);
                        });
}

}  // namespace sok::cpu
