// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CPU_KEY_MAP_H_
#define SOK_CPU_KEY_MAP_H_

#include <cstdint>
#include <vector>

#include "cc_ops/core/hash.h"
#include "cc_ops/core/types.h"

namespace sok::cpu {

// Numbers the different keys of a batch in the order in which they first occur: a small scratch
// map, used by one thread, which lives as long as one op.
class KeyMap {
 public:
  // `expected`: about how many keys will be given.
  explicit KeyMap(std::int64_t expected) { reset(expected); }

  // Forgets all keys.
  void reset(std::int64_t expected) {
    std::size_t slots = 64;
    while (static_cast<std::int64_t>(slots) < 2 * expected && slots < (std::size_t{1} << 20)) {
      slots *= 2;
    }
    keys_.clear();
    resize(slots);
  }

  // The number of `key`; a new one gets the next.
  std::uint32_t number(Key key, std::uint64_t hash) {
    if (2 * keys_.size() >= slots_.size()) resize(2 * slots_.size());
    // The low bits pick the slot: the high ones picked the part of the batch.
    std::size_t slot = hash & mask_;
    while (slots_[slot] != kFree) {
      if (keys_[slots_[slot]] == key) return slots_[slot];
      slot = (slot + 1) & mask_;
    }
    slots_[slot] = static_cast<std::uint32_t>(keys_.size());
    keys_.push_back(key);
    return slots_[slot];
  }

  const std::vector<Key>& keys() const { return keys_; }

 private:
  static constexpr std::uint32_t kFree = 0xffffffffu;

  void resize(std::size_t slots) {
    slots_.assign(slots, kFree);
    mask_ = slots - 1;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      std::size_t slot = mix64(static_cast<std::uint64_t>(keys_[i])) & mask_;
      while (slots_[slot] != kFree) slot = (slot + 1) & mask_;
      slots_[slot] = static_cast<std::uint32_t>(i);
    }
  }

  std::vector<Key> keys_;
  std::vector<std::uint32_t> slots_;
  std::size_t mask_ = 0;
};

}  // namespace sok::cpu

#endif  // SOK_CPU_KEY_MAP_H_
