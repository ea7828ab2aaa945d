// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Philox4x32-10, a counter-based random generator: J. Salmon, M. Moraes, R. Dror, D. Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#ifndef SOK_CORE_PHILOX_H_
#define SOK_CORE_PHILOX_H_

#include <cstdint>

#include "cc_ops/core/host_device.h"

namespace sok {

struct Philox4 {
  std::uint32_t x[4];
};

// Encrypts the counter (c0, c1, c2, c3) with a 64-bit key: four independent random words.
SOK_HD Philox4 philox(std::uint64_t key, std::uint32_t c0, std::uint32_t c1, std::uint32_t c2,
                      std::uint32_t c3) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xd2511f53ULL * c0;
    const std::uint64_t p1 = 0xcd9e8d57ULL * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace sok

#endif  // SOK_CORE_PHILOX_H_
