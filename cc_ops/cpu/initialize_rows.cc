// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/initialize_rows.h"

#include <algorithm>

#include "cc_ops/cpu/random_words.h"
#include "cc_ops/cpu/vector_ops.h"

namespace sok::cpu {
namespace {

// With the kind known here, the loop has no branch in it.
#define SOK_DEFINE_SHAPE(name, of_kind)                                                  \
  SOK_VECTOR_CLONES void name(const Initializer& initializer,                            \
                              const std::uint32_t* __restrict words, std::int64_t count, \
                              float* __restrict out) {                                   \
    Initializer fixed = initializer;                                                     \
    fixed.kind = of_kind;                                                                \
    for (std::int64_t c = 0; c < count; ++c) out[c] = fixed.shape(words[c]);             \
  }
SOK_DEFINE_SHAPE(shape_uniform, InitKind::kUniform)
SOK_DEFINE_SHAPE(shape_normal, InitKind::kNormal)
SOK_DEFINE_SHAPE(shape_truncated, InitKind::kTruncatedNormal)
#undef SOK_DEFINE_SHAPE

template <typename T>
void initialize(const Initializer& initializer, const Key* keys, std::int64_t count,
                std::int64_t width, T* const* rows) {
  if (initializer.kind == InitKind::kConstant) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::fill_n(rows[i], width, from_float<T>(initializer.a));
    }
    return;
  }
  const auto shape = initializer.kind == InitKind::kUniform  ? shape_uniform
                     : initializer.kind == InitKind::kNormal ? shape_normal
                                                             : shape_truncated;
  const auto blocks = static_cast<std::uint32_t>((width + 3) / 4);
  std::uint32_t words[4 * kRandomBlocks];
  float columns[4 * kRandomBlocks];
  // As many whole rows at a time as their blocks fit, or a piece of one row.
  const std::uint32_t together = std::max(1u, kRandomBlocks / blocks);
  for (std::int64_t row = 0; row < count && blocks < kRandomBlocks; row += together) {
    const std::int64_t n = std::min<std::int64_t>(together, count - row);
    RandomPlaces places = {};
    std::uint32_t at = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto key = static_cast<std::uint64_t>(keys[row + i]);
      for (std::uint32_t block = 0; block < blocks; ++block, ++at) {
        places.low[at] = static_cast<std::uint32_t>(key);
        places.high[at] = static_cast<std::uint32_t>(key >> 32);
        places.block[at] = block;
      }
    }
    random_words(initializer.seed, places, words);
    shape(initializer, words, 4 * n * blocks, columns);
    for (std::int64_t i = 0; i < n; ++i) convert(columns + 4 * i * blocks, width, rows[row + i]);
  }
  for (std::int64_t row = 0; row < count && blocks >= kRandomBlocks; ++row) {
    for (std::int64_t at = 0; at < width; at += 4 * kRandomBlocks) {
      const std::int64_t columns_left = std::min<std::int64_t>(4 * kRandomBlocks, width - at);
      random_words(initializer.seed, keys[row], static_cast<std::uint32_t>(at / 4), words);
      shape(initializer, words, columns_left, columns);
      convert(columns, columns_left, rows[row] + at);
    }
  }
}

}  // namespace

void initialize_rows(const Initializer& initializer, const Key* keys, std::int64_t count,
                     std::int64_t width, float* const* rows) {
  initialize(initializer, keys, count, width, rows);
}
void initialize_rows(const Initializer& initializer, const Key* keys, std::int64_t count,
                     std::int64_t width, Half* const* rows) {
  initialize(initializer, keys, count, width, rows);
}
void initialize_rows(const Initializer& initializer, const Key* keys, std::int64_t count,
                     std::int64_t width, BFloat16* const* rows) {
  initialize(initializer, keys, count, width, rows);
}

}  // namespace sok::cpu
