// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CPU_MERGE_H_
#define SOK_CPU_MERGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc_ops/core/batch.h"
#include "cc_ops/core/status.h"
#include "cc_ops/cpu/bag_task.h"
#include "cc_ops/cpu/executor.h"
#include "cc_ops/cpu/key_map.h"
#include "cc_ops/cpu/table.h"

namespace sok::cpu {

struct MergeFeature {
  Bags bags;
  Columns gradient;  // of the output: [bags, width]
};

// From the gradients of bags to one summed gradient a different key. Sums are added up in the order of
// the batch: the result does not depend on the number of threads.
//
// First the ids are distributed to parts by their hash, each thread a range of the batch (a chunk). A
// part is small enough for the cache; its keys are numbered, and what contributes to a key is brought
// together. Nothing is summed until somebody asks for it.
class Merge {
 public:
  // Keys of one part.
  struct Part {
    std::vector<Key> keys;
    std::int64_t first = 0;  // of them in the result

    std::int64_t count() const { return static_cast<std::int64_t>(keys.size()); }

   private:
    friend class Merge;
    struct Share {
      const void* gradient;  // of the bag's output
      float scale;
      std::uint32_t feature;
    };
    std::vector<std::uint32_t> begin;  // key i's shares are [begin[i], begin[i + 1])
    std::unique_ptr<Share[]> shares;
  };

  // `table` says which ids count (a static table drops or clips ids out of range).
  Merge(Executor& executor, const Table& table, std::vector<MergeFeature> features,
        std::int64_t width);

  std::int64_t count() const { return count_; }
  // Refuses ids that were dropped, where the table's policy is an error: a lookup checks its ids, but those
  // of a gradient made by hand must not vanish silently.
  Status check() const;
  // keys: [count], gradients: [count, width].
  void write(Executor& executor, Key* keys, float* gradients) const;

  const std::vector<Part>& parts() const { return parts_; }
  // The summed gradient of a part's key number i; keys are best asked for in order. In `scratch` ([width]), or where it lies already.
  const float* sum(const Part& part, std::int64_t i, float* scratch) const;

 private:
  struct Entry {
    Key key;
    const void* gradient;
    float scale;
    std::uint32_t feature;
  };
  struct Chunk {
    std::unique_ptr<Entry[]> entries;
    std::vector<std::uint32_t> begin;  // those of part p are [begin[p], begin[p + 1])
    bool dropped = false;
  };

  void distribute(const BagTask* first, const BagTask* last, Chunk* chunk) const;
  void number_keys(const std::vector<Chunk>& chunks, std::size_t part, KeyMap* numbers);

  const Table& table_;
  std::vector<MergeFeature> features_;
  std::int64_t width_;
  std::vector<Part> parts_;
  std::int64_t count_ = 0;
  bool dropped_ = false;
};

}  // namespace sok::cpu

#endif  // SOK_CPU_MERGE_H_
