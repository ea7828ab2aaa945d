// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CPU_GROUPING_H_
#define SOK_CPU_GROUPING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cc_ops/core/batch.h"
#include "cc_ops/core/status.h"
#include "cc_ops/cpu/bag_task.h"
#include "cc_ops/cpu/executor.h"
#include "cc_ops/cpu/key_map.h"
#include "cc_ops/cpu/table.h"

namespace sok::cpu {

// The ids that the features of a call read from one table, by key: a training lookup finds each key
// once, and the update that follows sums its gradients and finds nothing.
//
// First the ids are distributed to parts by their hash, each thread a range of the batch (a chunk).
// A part is small enough for the cache, as is the piece of the table's index that its keys are in;
// its keys are numbered, and the ids of a key brought together, in the order of the batch.
class Grouping {
 public:
  // One id of a key.
  struct Share {
    std::uint32_t feature;
    std::uint32_t bag;
    std::uint32_t id;  // its place among the feature's ids
    float scale;       // of its bag's gradient
  };
  // Keys that belong to no other part.
  struct Part {
    std::vector<Key> keys;
    std::vector<Row> rows;             // of the keys, once they are found
    std::int64_t first = 0;            // of its keys among those of all parts
    std::vector<std::uint32_t> begin;  // key i's shares are [begin[i], begin[i + 1])
    std::unique_ptr<Share[]> shares;

    std::int64_t count() const { return static_cast<std::int64_t>(keys.size()); }
  };

  // `table` says which ids count (a static table drops or clips ids out of range).
  Grouping(Executor& executor, const Table& table, std::vector<Bags> features);

  const std::vector<Part>& parts() const { return parts_; }
  std::int64_t count() const { return count_; }
  std::vector<IdSpan> keys() const;
  // Refuses ids that were dropped, where the table's policy is an error: a lookup checks its ids,
  // but those of a gradient made by hand must not vanish silently.
  Status check() const;

  // Finds or inserts the keys of a part, and writes the row of each id to rows[feature][id]. Of
  // different parts at the same time; a reservation for keys() precedes, and Table::settle follows.
  void find_or_insert(std::size_t part, Table* table, Row* const* rows);

  // All parts are found, and may be used again: `memory` keeps the ids where they are, as they are.
  void keep(std::shared_ptr<const void> memory) { memory_ = std::move(memory); }
  bool kept() const { return memory_ != nullptr; }
  // Whether these features read the very ids of this kept grouping: the same memory.
  bool is_of(const std::vector<Bags>& features) const;

 private:
  struct Entry {
    Key key;
    Share share;
  };
  struct Chunk {
    std::unique_ptr<Entry[]> entries;
    std::vector<std::uint32_t> begin;  // those of part p are [begin[p], begin[p + 1])
    bool dropped = false;
  };

  void distribute(const BagTask* first, const BagTask* last, Chunk* chunk) const;
  void number_keys(const std::vector<Chunk>& chunks, std::size_t part, KeyMap* numbers);

  const Table& table_;
  std::vector<Bags> features_;
  std::shared_ptr<const void> memory_;
  std::vector<Part> parts_;
  std::int64_t count_ = 0;
  bool dropped_ = false;
};

// The grouping of the table's last training lookup, if that had these features; else a new one.
std::shared_ptr<const Grouping> grouping_of(Executor& executor, const Table& table,
                                            const std::vector<Bags>& features);

// Calls body(i, executor) for every i of [0, ids.size()), a table with ids[i] ids. Of a table with
// few ids the executor is one thread: several such tables share the threads.
void for_each_table(Executor& executor, const std::vector<std::int64_t>& ids,
                    const std::function<void(std::size_t, Executor&)>& body);

}  // namespace sok::cpu

#endif  // SOK_CPU_GROUPING_H_
