// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Inner loops over columns, compiled for several vector widths and chosen at run time. No sum is
// reordered and no product fused, so every choice gives the same bits.
#ifndef SOK_CPU_VECTOR_OPS_H_
#define SOK_CPU_VECTOR_OPS_H_

#include <cstdint>

#include "cc_ops/core/types.h"

// Sanitizers cannot follow the resolver of a multiversioned function.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(SOK_SANITIZE)
#define SOK_HAS_VECTOR_CLONES
#define SOK_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SOK_VECTOR_CLONES
#endif

namespace sok::cpu {

// Whether all ids lie in [0, rows).
bool all_in_range(const Key* ids, std::int64_t count, std::int64_t rows);
// The rows of a static table: the ids, kNoRow for those outside of [0, rows).
void rows_of_ids(const Key* ids, std::int64_t count, std::int64_t rows, Row* out);

// out[c] = (start ? 0 : out[c]) + sum over i of weights[i] * rows[i][c], in the order of i; null
// weights are all 1. 16-bit rows are summed in float.
void sum_rows(const float* const* rows, const float* weights, std::int64_t count,
              std::int64_t width, bool start, float* out);
void sum_rows(const Half* const* rows, const float* weights, std::int64_t count, std::int64_t width,
              bool start, float* out);
void sum_rows(const BFloat16* const* rows, const float* weights, std::int64_t count,
              std::int64_t width, bool start, float* out);

// out[c] += scale * in[c]
void add_scaled(const float* in, float scale, std::int64_t width, float* out);
// out[c] = scale * in[c]
void set_scaled(const float* in, float scale, std::int64_t width, float* out);
// out[c] *= scale
void scale_row(float scale, std::int64_t width, float* out);

// Eight partial sums, so that the order does not depend on the vector width.
float dot(const float* a, const float* b, std::int64_t width);

void convert(const float* in, std::int64_t count, Half* out);
void convert(const float* in, std::int64_t count, BFloat16* out);
void convert(const float* in, std::int64_t count, float* out);
void convert(const Half* in, std::int64_t count, float* out);
void convert(const BFloat16* in, std::int64_t count, float* out);

// `in` itself if it is float, else `scratch` with its values.
inline const float* direct_or_converted(const float* in, std::int64_t, float*) { return in; }
template <typename T>
const float* direct_or_converted(const T* in, std::int64_t count, float* scratch) {
  convert(in, count, scratch);
  return scratch;
}

}  // namespace sok::cpu

#endif  // SOK_CPU_VECTOR_OPS_H_
