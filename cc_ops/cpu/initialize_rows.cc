// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/initialize_rows.h"

#include <algorithm>

#include "cc_ops/cpu/vector_ops.h"

namespace sok::cpu {
namespace {

// Blocks of four columns computed at a time: of wide rows, and of what is narrower.
constexpr std::uint32_t kMany = 16, kFew = 4;

// The words of the columns from 4 * first on. Apart from what is made of them, so that this loop runs
// over blocks, and the others over columns.
template <std::uint32_t blocks>
__attribute__((always_inline)) inline void fill_words(Initializer initializer, Key key,
                                                      std::uint32_t first,
                                                      std::uint32_t* __restrict out) {
  for (std::uint32_t b = 0; b < blocks; ++b) {
    const Philox4 words = initializer.words(key, first + b);
    for (int i = 0; i < 4; ++i) out[4 * b + i] = words.x[i];
  }
}
SOK_VECTOR_CLONES void fill_many(const Initializer& initializer, Key key, std::uint32_t first,
                                 std::uint32_t* out) {
  fill_words<kMany>(initializer, key, first, out);
}
SOK_VECTOR_CLONES void fill_few(const Initializer& initializer, Key key, std::uint32_t first,
                                std::uint32_t* out) {
  fill_words<kFew>(initializer, key, first, out);
}

// With the kind known here, the loop has no branch in it.
#define SOK_DEFINE_SHAPE(name, of_kind)                                                        \
  SOK_VECTOR_CLONES void name(const Initializer& initializer, const std::uint32_t* __restrict words, \
                              std::int64_t count, float* __restrict out) {                     \
    Initializer fixed = initializer;                                                           \
    fixed.kind = of_kind;                                                                      \
    for (std::int64_t c = 0; c < count; ++c) out[c] = fixed.shape(words[c]);                   \
  }
SOK_DEFINE_SHAPE(shape_uniform, InitKind::kUniform)
SOK_DEFINE_SHAPE(shape_normal, InitKind::kNormal)
SOK_DEFINE_SHAPE(shape_truncated, InitKind::kTruncatedNormal)
#undef SOK_DEFINE_SHAPE

template <typename T>
void initialize(const Initializer& initializer, Key key, std::int64_t width, T* row) {
  if (initializer.kind == InitKind::kConstant) {
    std::fill_n(row, width, from_float<T>(initializer.a));
    return;
  }
  const auto shape = initializer.kind == InitKind::kUniform  ? shape_uniform
                     : initializer.kind == InitKind::kNormal ? shape_normal
                                                             : shape_truncated;
  std::uint32_t words[4 * kMany];
  float columns[4 * kMany];
  for (std::int64_t at = 0; at < width;) {
    const bool few = width - at <= 4 * kFew;
    const std::int64_t count = 4 * (few ? kFew : kMany);
    (few ? fill_few : fill_many)(initializer, key, static_cast<std::uint32_t>(at / 4), words);
    shape(initializer, words, count, columns);
    convert(columns, std::min(count, width - at), row + at);
    at += count;
  }
}

}  // namespace

void initialize_row(const Initializer& initializer, Key key, std::int64_t width, float* row) {
  initialize(initializer, key, width, row);
}
void initialize_row(const Initializer& initializer, Key key, std::int64_t width, Half* row) {
  initialize(initializer, key, width, row);
}
void initialize_row(const Initializer& initializer, Key key, std::int64_t width, BFloat16* row) {
  initialize(initializer, key, width, row);
}

}  // namespace sok::cpu
