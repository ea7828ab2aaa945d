// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The three atomic operations the table's index needs, on 64-bit words, for host and device.
#ifndef SOK_CORE_ATOMIC_H_
#define SOK_CORE_ATOMIC_H_

#include <cstdint>

#include "cc_ops/core/host_device.h"

namespace sok {

SOK_HD std::uint64_t load_acquire(const std::uint64_t* word) {
#if defined(__CUDA_ARCH__)
  std::uint64_t value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
#else
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}

// Replaces `expected` by `desired`; false, and no change, if the word holds something else.
SOK_HD bool compare_and_swap(std::uint64_t* word, std::uint64_t expected, std::uint64_t desired) {
#if defined(__CUDA_ARCH__)
  return atomicCAS(reinterpret_cast<unsigned long long*>(word), expected, desired) == expected;
#else
  return __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE);
#endif
}

// Flips bits of a word; everything written before is visible to whoever acquires the new word.
SOK_HD void xor_release(std::uint64_t* word, std::uint64_t bits) {
#if defined(__CUDA_ARCH__)
  __threadfence();
  atomicXor(reinterpret_cast<unsigned long long*>(word), bits);
#else
  __atomic_fetch_xor(word, bits, __ATOMIC_RELEASE);
#endif
}

}  // namespace sok

#endif  // SOK_CORE_ATOMIC_H_
