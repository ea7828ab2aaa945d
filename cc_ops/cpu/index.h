// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Loops over the index of a table in host memory.
#ifndef SOK_CPU_INDEX_H_
#define SOK_CPU_INDEX_H_

#include <algorithm>
#include <cstdint>

#include "cc_ops/core/table_ref.h"
#include "cc_ops/core/types.h"

namespace sok::cpu {

// Ids on their way per thread: each has its control words fetched, a little later its likely slot,
// and is looked up when both should be there.
constexpr std::int64_t kControlAhead = 32, kSlotsAhead = 16;

// Calls visit(i, hash of ids[i]) for all ids, in order; meanwhile the index's memory for the next
// ones is brought into the cache, so that their misses overlap.
template <typename Visit>
void visit_ahead(const IndexRef& index, const Key* ids, std::int64_t count, Visit&& visit) {
  std::uint64_t hashes[2 * kControlAhead];
  const auto hash_of = [&](std::int64_t i) -> std::uint64_t& {
    return hashes[static_cast<std::uint64_t>(i) % (2 * kControlAhead)];
  };
  const auto fetch_control = [&](std::int64_t i) {
    hash_of(i) = index.hash(ids[i]);
    __builtin_prefetch(index.control + 2 * std::uint64_t{index.home(hash_of(i))});
  };
  const auto fetch_slot = [&](std::int64_t i) {
    const std::uint32_t group = index.home(hash_of(i));
    const std::uint64_t words[2] = {load_acquire(index.control + 2 * std::uint64_t{group}),
                                    load_acquire(index.control + 2 * std::uint64_t{group} + 1)};
    const std::uint64_t fingerprint = IndexRef::fingerprint(hash_of(i));
    const std::uint64_t match[2] = {match_byte(words[0], fingerprint),
                                    match_byte(words[1], fingerprint)};
    // Where it seems to be, or where it would go.
    const std::uint64_t* where = (match[0] | match[1]) != 0 ? match : nullptr;
    const std::uint64_t free[2] = {match_free(words[0]), match_free(words[1])};
    if (where == nullptr) where = free;
    if ((where[0] | where[1]) == 0) return;
    const std::uint32_t w = where[0] != 0 ? 0 : 1;
    __builtin_prefetch(index.slots +
                       (std::uint64_t{group} * kGroup + w * 8 + first_byte(where[w])));
  };
  for (std::int64_t i = 0; i < std::min(kControlAhead, count); ++i) fetch_control(i);
  for (std::int64_t i = 0; i < std::min(kSlotsAhead, count); ++i) fetch_slot(i);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kControlAhead < count) fetch_control(i + kControlAhead);
    if (i + kSlotsAhead < count) fetch_slot(i + kSlotsAhead);
    visit(i, hash_of(i));
  }
}

// Calls visit(slot) for the full slots of the groups [first, last), in order.
template <typename Visit>
void for_each_slot(const IndexRef& index, std::uint32_t first, std::uint32_t last, Visit&& visit) {
  for (std::uint64_t word = 2 * std::uint64_t{first}; word < 2 * std::uint64_t{last}; ++word) {
    for (std::uint64_t full = match_full(index.control[word]); full != 0; full &= full - 1) {
      visit(index.slots[word * 8 + first_byte(full)]);
    }
  }
}

// Puts a key that is not there into the groups [first, last) of an index without deleted slots, if
// its home is one of them and they have room from there on. Nobody else may be there.
inline bool append(const IndexRef& index, const Slot& slot, std::uint32_t first,
                   std::uint32_t last) {
  const std::uint64_t hash = index.hash(slot.key);
  std::uint32_t group = index.home(hash);
  if (group < first) return false;
  for (; group < last; ++group) {
    for (std::uint64_t word = 2 * std::uint64_t{group}; word < 2 * std::uint64_t{group} + 2;
         ++word) {
      const std::uint64_t empty = match_empty(index.control[word]);
      if (empty == 0) continue;
      const std::uint32_t place = first_byte(empty);
      index.control[word] ^= (kEmptyByte ^ IndexRef::fingerprint(hash)) << (8 * place);
      index.slots[word * 8 + place] = slot;
      return true;
    }
  }
  return false;
}

}  // namespace sok::cpu

#endif  // SOK_CPU_INDEX_H_
