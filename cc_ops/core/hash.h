// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CORE_HASH_H_
#define SOK_CORE_HASH_H_

#include <cstdint>

#include "cc_ops/core/host_device.h"
#include "cc_ops/core/types.h"

namespace sok {

// A bijection of 64-bit words in which every input bit reaches every output bit: the finaliser of
// MurmurHash3 (A. Appleby, public domain).
SOK_HD std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}

// Scales a 64-bit hash to [0, n) by its high half, for any n: no power of two is needed.
SOK_HD std::uint32_t scale_to(std::uint64_t hash, std::uint32_t n) {
  return static_cast<std::uint32_t>(((hash >> 32) * n) >> 32);
}

// The rank that owns a key of a distributed hash table. Salted, so that the keys of one rank still
// fill that rank's index evenly.
SOK_HD std::uint32_t owner_of(Key key, std::uint32_t ranks) {
  return scale_to(mix64(static_cast<std::uint64_t>(key) ^ 0x9e3779b97f4a7c15ULL), ranks);
}

}  // namespace sok

#endif  // SOK_CORE_HASH_H_
