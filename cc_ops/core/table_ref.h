// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Non-owning, trivially copyable views of a table: they go by value into loops and kernels.
//
// The index maps keys to row numbers by open addressing. Slots come in groups of 16. Each slot has
// a control byte, kept apart from the keys, so that every key is legal:
//
//   0x00..0x7f  full; the low 7 bits of the key's hash, its fingerprint
//   0x80        empty: a search may stop here
//   0xfe        deleted: a search goes on
//   0xff        busy: an insertion is writing this slot
//
// A search reads one group's 16 control bytes at a time, as two words, and compares all of them
// with the fingerprint at once; of the keys it reads almost only the one it looks for.
#ifndef SOK_CORE_TABLE_REF_H_
#define SOK_CORE_TABLE_REF_H_

#include <cstdint>

#include "cc_ops/core/atomic.h"
#include "cc_ops/core/hash.h"
#include "cc_ops/core/host_device.h"
#include "cc_ops/core/types.h"

namespace sok {

constexpr std::uint32_t kGroup = 16;

// An index is full at 7/8: a search still reads little more than one group on average.
constexpr std::int64_t kLoadNumerator = 7, kLoadDenominator = 8;
// Rows that one table can have: at that load its index has fewer than 2^32 slots, whose numbers
// have 32 bits.
constexpr std::int64_t kMostRows = 0xe0000000 - 2 * std::int64_t{kGroup};

inline std::int64_t limit_of(std::uint32_t groups) {
  return static_cast<std::int64_t>(groups) * kGroup * kLoadNumerator / kLoadDenominator;
}

inline std::uint32_t groups_for(std::int64_t keys) {
  const std::int64_t slots = (keys * kLoadDenominator + kLoadNumerator - 1) / kLoadNumerator;
  return slots <= kGroup ? 1 : static_cast<std::uint32_t>((slots + kGroup - 1) / kGroup);
}

constexpr std::uint64_t kEveryByte = 0x0101010101010101ULL;
constexpr std::uint64_t kEveryTopBit = 0x8080808080808080ULL;
constexpr std::uint64_t kEmptyByte = 0x80;
constexpr std::uint64_t kDeletedByte = 0xfe;
constexpr std::uint64_t kBusyByte = 0xff;

// Each function below answers with the top bit of every byte that qualifies.
// match_byte may also mark a byte above a true match; callers compare the key anyway.
SOK_HD std::uint64_t match_byte(std::uint64_t word, std::uint64_t byte) {
  const std::uint64_t x = word ^ (kEveryByte * byte);
  return (x - kEveryByte) & ~x & kEveryTopBit;
}
SOK_HD std::uint64_t match_empty(std::uint64_t word) { return word & ~(word << 6) & kEveryTopBit; }
SOK_HD std::uint64_t match_free(std::uint64_t word) { return word & ~(word << 7) & kEveryTopBit; }
SOK_HD std::uint64_t match_deleted(std::uint64_t word) { return match_free(word) & (word << 6); }
SOK_HD std::uint64_t match_busy(std::uint64_t word) { return word & (word << 7) & kEveryTopBit; }
SOK_HD std::uint64_t match_full(std::uint64_t word) { return ~word & kEveryTopBit; }

SOK_HD std::uint32_t first_byte(std::uint64_t mask) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint32_t>(__ffsll(static_cast<long long>(mask)) - 1) >> 3;
#else
  return static_cast<std::uint32_t>(__builtin_ctzll(mask)) >> 3;
#endif
}

struct alignas(16) Slot {
  Key key;
  Row row;
};

struct FoundOrInserted {
  Row row;                      // kNoRow: the index is full
  bool inserted;                // the caller must initialise the row
  std::uint32_t slot = kNoRow;  // of an inserted key
  bool reused = false;          // it was one marked deleted
};

struct IndexRef {
  std::uint64_t* control = nullptr;  // two words a group
  Slot* slots = nullptr;
  std::uint32_t groups = 0;
  std::uint64_t hash_mask = ~0ULL;  // 0 makes every key collide: for tests

  SOK_HD std::uint64_t hash(Key key) const {
    return mix64(static_cast<std::uint64_t>(key)) & hash_mask;
  }
  SOK_HD std::uint32_t home(std::uint64_t hash) const { return scale_to(hash, groups); }
  SOK_HD static std::uint64_t fingerprint(std::uint64_t hash) { return hash & 0x7f; }
  SOK_HD std::uint32_t next(std::uint32_t group) const {
    return group + 1 == groups ? 0 : group + 1;
  }

  SOK_HD void load_group(std::uint32_t group, std::uint64_t words[2]) const {
#if defined(__CUDA_ARCH__)
    // One 16-byte access.
    asm volatile("ld.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(words[0]), "=l"(words[1])
                 : "l"(control + 2 * static_cast<std::uint64_t>(group)));
#else
    words[0] = control[2 * group];
    words[1] = control[2 * group + 1];
#endif
  }

  // The slot of `key` within one group, or kNoRow.
  SOK_HD std::uint32_t slot_in_group(std::uint32_t group, const std::uint64_t words[2], Key key,
                                     std::uint64_t hash) const {
    for (std::uint32_t w = 0; w < 2; ++w) {
      std::uint64_t match = match_byte(words[w], fingerprint(hash));
      while (match != 0) {
        const std::uint32_t slot = group * kGroup + w * 8 + first_byte(match);
        if (slots[slot].key == key) return slot;
        match &= match - 1;
      }
    }
    return kNoRow;
  }

  // Key and row of a slot, in one 16-byte access on a device: a reader that meets an insertion half
  // done sees the old pair or the new one.
  SOK_HD Slot load_slot(std::uint32_t slot) const {
#if defined(__CUDA_ARCH__)
    Slot result;
    unsigned long long key, row;
    asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(key), "=l"(row) : "l"(slots + slot));
    result.key = static_cast<Key>(key);
    result.row = static_cast<Row>(row);
    return result;
#else
    return slots[slot];
#endif
  }
  SOK_HD void store_slot(std::uint32_t slot, Key key, Row row) const {
#if defined(__CUDA_ARCH__)
    asm volatile("st.global.v2.u64 [%0], {%1, %2};"
                 :
                 : "l"(slots + slot), "l"(key), "l"(static_cast<unsigned long long>(row))
                 : "memory");
#else
    slots[slot].key = key;
    slots[slot].row = row;
#endif
  }

  // The slot of `key`, or kNoRow. Nobody may insert at the same time.
  SOK_HD std::uint32_t find_slot(Key key, std::uint64_t hash) const {
    std::uint32_t group = home(hash);
    for (std::uint32_t probe = 0; probe < groups; ++probe) {
      std::uint64_t words[2];
      load_group(group, words);
      const std::uint32_t slot = slot_in_group(group, words, key, hash);
      if (slot != kNoRow) return slot;
      if ((match_empty(words[0]) | match_empty(words[1])) != 0) return kNoRow;
      group = next(group);
    }
    return kNoRow;
  }

  SOK_HD Row find(Key key, std::uint64_t hash) const {
    std::uint32_t group = home(hash);
    for (std::uint32_t probe = 0; probe < groups; ++probe) {
      std::uint64_t words[2];
      load_group(group, words);
      for (std::uint32_t w = 0; w < 2; ++w) {
        std::uint64_t match = match_byte(words[w], fingerprint(hash));
        for (; match != 0; match &= match - 1) {
          const Slot slot = load_slot(group * kGroup + w * 8 + first_byte(match));
          if (slot.key == key) return slot.row;
        }
      }
      if ((match_empty(words[0]) | match_empty(words[1])) != 0) return kNoRow;
      group = next(group);
    }
    return kNoRow;
  }

  // What a thread that would insert a key found.
  enum class Outcome {
    kFound,    // the key, with its row
    kClaimed,  // a free slot, which is this thread's until it publishes the key in it
    kFull,     // neither
    kAgain     // an insertion in progress, or one that came first: to be tried again
  };
  struct Claim {
    Outcome outcome = Outcome::kAgain;
    Row row = kNoRow;
    std::uint32_t slot = kNoRow;
    bool reused = false;  // it is one marked deleted
  };

  // Looks for `key`, and if it is not there claims the first free slot of its probe sequence with a
  // compare-and-swap. Any number of threads may call this at once, also with equal keys: none goes
  // past a busy slot, so two of them cannot pass each other. Nobody may erase at the same time.
  SOK_HD Claim claim(Key key, std::uint64_t hash) const {
    std::uint32_t free_slot = kNoRow;
    std::uint64_t free_word = 0;
    std::uint32_t group = home(hash);
    for (std::uint32_t probe = 0; probe < groups; ++probe) {
      std::uint64_t words[2];
      if (!load_settled_group(group, fingerprint(hash), words)) return {};
      const std::uint32_t slot = slot_in_group(group, words, key, hash);
      if (slot != kNoRow) return {Outcome::kFound, slots[slot].row, slot};
      for (std::uint32_t w = 0; w < 2 && free_slot == kNoRow; ++w) {
        const std::uint64_t free = match_free(words[w]);
        if (free == 0) continue;
        free_slot = group * kGroup + w * 8 + first_byte(free);
        free_word = words[w];
      }
      if ((match_empty(words[0]) | match_empty(words[1])) != 0) break;
      group = next(group);
    }
    if (free_slot == kNoRow) return {Outcome::kFull};
    const std::uint32_t shift = free_slot % 8 * 8;
    if (!compare_and_swap(control + free_slot / 8, free_word, free_word | kBusyByte << shift)) {
      return {};
    }
    const bool reused = (free_word >> shift & 0xff) == kDeletedByte;
    return {Outcome::kClaimed, kNoRow, free_slot, reused};
  }

  // Makes the slot that was claimed for `key` its own, with that row.
  SOK_HD void publish(std::uint32_t slot, Key key, std::uint64_t hash, Row row) const {
    store_slot(slot, key, row);
    xor_release(control + slot / 8, (kBusyByte ^ fingerprint(hash)) << slot % 8 * 8);
  }

  // Finds `key`, or inserts it under the row number that allocate() gives, however often that has
  // to be tried. For a thread that may wait for others: on a host. A device has
  // cuda/resolve.cuh.
  template <typename Allocate>
  FoundOrInserted find_or_insert(Key key, std::uint64_t hash, Allocate&& allocate) const {
    for (;;) {
      const Claim result = claim(key, hash);
      if (result.outcome == Outcome::kAgain) continue;
      if (result.outcome != Outcome::kClaimed) return {result.row, false};
      const Row row = allocate();
      publish(result.slot, key, hash, row);
      return {row, true, result.slot, result.reused};
    }
  }

 private:
  // A group's control words, unless an insertion is in progress in it; if one of them matches, what
  // was written before it became full can be read.
  SOK_HD bool load_settled_group(std::uint32_t group, std::uint64_t match,
                                 std::uint64_t words[2]) const {
#if defined(__CUDA_ARCH__)
    // Acquiring loads would empty the L1 cache, each of them. Few groups match.
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(words[0]), "=l"(words[1])
                 : "l"(control + 2 * static_cast<std::uint64_t>(group))
                 : "memory");
    if ((match_byte(words[0], match) | match_byte(words[1], match)) != 0) __threadfence();
#else
    static_cast<void>(match);
    words[0] = load_acquire(control + 2 * group);
    words[1] = load_acquire(control + 2 * group + 1);
#endif
    return (match_busy(words[0]) | match_busy(words[1])) == 0;
  }
};

// How row numbers map to slabs. Slab 0 holds the first rows (all of them in a table that was given
// its size); what is added later comes in eighths of the doubled size, so that at most about an
// eighth of the rows is unused, and a row's slab follows from the position of its top bit.
struct SlabShape {
  std::uint32_t first = 0;  // rows of slab 0
  std::uint32_t log2 = 3;   // of the smallest power of two >= first, at least 3

  static SlabShape for_rows(std::uint64_t rows) {
    SlabShape shape;
    shape.first = static_cast<std::uint32_t>(rows);
    while ((1ULL << shape.log2) < rows) ++shape.log2;
    return shape;
  }

  SOK_HD void locate(Row row, std::uint32_t* slab, std::uint32_t* offset) const {
    if (row < first) {
      *slab = 0;
      *offset = row;
      return;
    }
    const std::uint64_t r = static_cast<std::uint64_t>(row) - first + (1ULL << log2);
#if defined(__CUDA_ARCH__)
    const std::uint32_t top = 63u - static_cast<std::uint32_t>(__clzll(static_cast<long long>(r)));
#else
    const std::uint32_t top = 63u - static_cast<std::uint32_t>(__builtin_clzll(r));
#endif
    const std::uint32_t shift = top - 3;
    *slab = 1 + 8 * (top - log2) + (static_cast<std::uint32_t>(r >> shift) & 7u);
    *offset = static_cast<std::uint32_t>(r & ((1ULL << shift) - 1));
  }

  std::uint64_t rows_in(std::uint32_t slab) const {
    return slab == 0 ? first : 1ULL << (log2 + (slab - 1) / 8 - 3);
  }
};

// One plane: the value of every row (T the table's row type), or one optimizer state (float).
template <typename T>
struct PlaneRef {
  T* slab0 = nullptr;
  T* const* slabs = nullptr;
  SlabShape shape;
  std::int64_t width = 0;

  SOK_HD T* row(Row r) const {
    if (r < shape.first) return slab0 + static_cast<std::int64_t>(r) * width;
    std::uint32_t slab, offset;
    shape.locate(r, &slab, &offset);
    return slabs[slab] + static_cast<std::int64_t>(offset) * width;
  }
};

}  // namespace sok

#endif  // SOK_CORE_TABLE_REF_H_
