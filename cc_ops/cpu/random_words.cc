// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/random_words.h"

#include <cstring>

#include "cc_ops/core/philox.h"
#include "cc_ops/cpu/vector_ops.h"

#ifdef SOK_HAS_VECTOR_CLONES
#include <immintrin.h>
#endif

namespace sok::cpu {
namespace {

__attribute__((always_inline)) inline void fill(std::uint64_t seed, const RandomPlaces& places,
                                                std::uint32_t* __restrict out) {
  for (std::uint32_t b = 0; b < kRandomBlocks; ++b) {
    const Philox4 words = philox(seed, places.low[b], places.high[b], places.block[b], 0u);
    for (int i = 0; i < 4; ++i) out[4 * b + i] = words.x[i];
  }
}
__attribute__((always_inline)) inline void fill_row(std::uint64_t seed, Key key,
                                                    std::uint32_t first,
                                                    std::uint32_t* __restrict out) {
  const auto k = static_cast<std::uint64_t>(key);
  const auto low = static_cast<std::uint32_t>(k), high = static_cast<std::uint32_t>(k >> 32);
  for (std::uint32_t b = 0; b < kRandomBlocks; ++b) {
    const Philox4 words = philox(seed, low, high, first + b, 0u);
    for (int i = 0; i < 4; ++i) out[4 * b + i] = words.x[i];
  }
}

#ifdef SOK_HAS_VECTOR_CLONES

// g++'s loop with AVX-512 multiplies 64 by 64 bits, at three times the cost of 32 by 32; so here it
// is by hand, eight blocks at a time. A word is the low half of its lane; what the high halves hold
// does not matter.
using Words = std::uint32_t __attribute__((vector_size(32)));
using Lanes = std::uint64_t __attribute__((vector_size(64)));

#define SOK_V4 __attribute__((target("arch=x86-64-v4")))
#define SOK_V3 __attribute__((target("arch=x86-64-v3")))
#define SOK_ANY __attribute__((target("default")))

SOK_V4 inline Lanes multiply(Lanes a, Lanes b) {
  // The masked form: the header's other one has a variable that g++ 12 warns of.
  return (Lanes)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
}
SOK_V4 inline Lanes load(const std::uint32_t* from) {
  Words words;
  std::memcpy(&words, from, sizeof(words));
  return __builtin_convertvector(words, Lanes);
}
SOK_V4 inline void fill_eight(std::uint64_t seed, Lanes c0, Lanes c1, Lanes c2,
                              std::uint32_t* out) {
  const Lanes m0 = Lanes{} + 0xd2511f53, m1 = Lanes{} + 0xcd9e8d57;
  Lanes c3 = {};
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Lanes p0 = multiply(m0, c0), p1 = multiply(m1, c2);
    c0 = (p1 >> 32) ^ c1 ^ std::uint64_t{k0};
    c2 = (p0 >> 32) ^ c3 ^ std::uint64_t{k1};
    c1 = p1;
    c3 = p0;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  // Words 0 and 1 of a block, and 2 and 3, in one lane each; then the lanes in the order of the
  // blocks.
  const Lanes a = (c0 & 0xffffffff) | (c1 << 32), b = (c2 & 0xffffffff) | (c3 << 32);
  const Lanes front = __builtin_shuffle(a, b, Lanes{0, 8, 1, 9, 2, 10, 3, 11});
  const Lanes back = __builtin_shuffle(a, b, Lanes{4, 12, 5, 13, 6, 14, 7, 15});
  std::memcpy(out, &front, sizeof(front));
  std::memcpy(out + 16, &back, sizeof(back));
}

SOK_V4 void words_of(std::uint64_t seed, const RandomPlaces& places, std::uint32_t* out) {
  for (int b = 0; b < 16; b += 8) {
    fill_eight(seed, load(places.low + b), load(places.high + b), load(places.block + b),
               out + 4 * b);
  }
}
SOK_V3 void words_of(std::uint64_t seed, const RandomPlaces& places, std::uint32_t* out) {
  fill(seed, places, out);
}
SOK_ANY void words_of(std::uint64_t seed, const RandomPlaces& places, std::uint32_t* out) {
  fill(seed, places, out);
}

SOK_V4 void words_of_row(std::uint64_t seed, Key key, std::uint32_t first, std::uint32_t* out) {
  const auto k = static_cast<std::uint64_t>(key);
  const Lanes blocks = Lanes{0, 1, 2, 3, 4, 5, 6, 7} + first;
  fill_eight(seed, Lanes{} + k, Lanes{} + (k >> 32), blocks, out);
  fill_eight(seed, Lanes{} + k, Lanes{} + (k >> 32), blocks + 8, out + 32);
}
SOK_V3 void words_of_row(std::uint64_t seed, Key key, std::uint32_t first, std::uint32_t* out) {
  fill_row(seed, key, first, out);
}
SOK_ANY void words_of_row(std::uint64_t seed, Key key, std::uint32_t first, std::uint32_t* out) {
  fill_row(seed, key, first, out);
}

#else

void words_of(std::uint64_t seed, const RandomPlaces& places, std::uint32_t* out) {
  fill(seed, places, out);
}
void words_of_row(std::uint64_t seed, Key key, std::uint32_t first, std::uint32_t* out) {
  fill_row(seed, key, first, out);
}

#endif

}  // namespace

void random_words(std::uint64_t seed, const RandomPlaces& places, std::uint32_t* out) {
  words_of(seed, places, out);
}
void random_words(std::uint64_t seed, Key key, std::uint32_t first, std::uint32_t* out) {
  words_of_row(seed, key, first, out);
}

}  // namespace sok::cpu
