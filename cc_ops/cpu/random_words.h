// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CPU_RANDOM_WORDS_H_
#define SOK_CPU_RANDOM_WORDS_H_

#include <cstdint>

#include "cc_ops/core/types.h"

namespace sok::cpu {

// Blocks of four words that are computed at a time: of one row, or of several narrow ones.
constexpr std::uint32_t kRandomBlocks = 16;

// What a block's words depend on besides the seed.
struct RandomPlaces {
  std::uint32_t low[kRandomBlocks], high[kRandomBlocks];  // of the key
  std::uint32_t block[kRandomBlocks];                     // of the row
};

// The random words of Initializer::words, [kRandomBlocks, 4]: of any blocks, or of one row's from
// `first` on.
void random_words(std::uint64_t seed, const RandomPlaces& places, std::uint32_t* out);
void random_words(std::uint64_t seed, Key key, std::uint32_t first, std::uint32_t* out);

}  // namespace sok::cpu

#endif  // SOK_CPU_RANDOM_WORDS_H_
