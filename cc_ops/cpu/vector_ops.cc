// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/vector_ops.h"

#include <cstring>

namespace sok::cpu {
namespace {

// Columns summed at a time: what fits the vector registers of every machine this runs on.
constexpr std::int64_t kColumns = 64;

template <typename T>
__attribute__((always_inline)) inline void sum_block(const T* const* rows, const float* weights,
                                                     std::int64_t count, std::int64_t at,
                                                     std::int64_t width, bool start, float* out) {
  float total[kColumns];
  if (start) {
    for (std::int64_t c = 0; c < width; ++c) total[c] = 0.0f;
  } else {
    for (std::int64_t c = 0; c < width; ++c) total[c] = out[at + c];
  }
  if (weights == nullptr) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T* row = rows[i] + at;
      for (std::int64_t c = 0; c < width; ++c) total[c] += to_float(row[c]);
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      const T* row = rows[i] + at;
      const float w = weights[i];
      for (std::int64_t c = 0; c < width; ++c) total[c] += w * to_float(row[c]);
    }
  }
  for (std::int64_t c = 0; c < width; ++c) out[at + c] = total[c];
}

template <typename T>
__attribute__((always_inline)) inline void sum_all(const T* const* rows, const float* weights,
                                                   std::int64_t count, std::int64_t width,
                                                   bool start, float* out) {
  std::int64_t at = 0;
  for (; at + kColumns <= width; at += kColumns) {
    sum_block(rows, weights, count, at, kColumns, start, out);
  }
  if (width - at >= 32) {
    sum_block(rows, weights, count, at, std::int64_t{32}, start, out);
    at += 32;
  }
  if (width - at >= 16) {
    sum_block(rows, weights, count, at, std::int64_t{16}, start, out);
    at += 16;
  }
  if (at < width) sum_block(rows, weights, count, at, width - at, start, out);
}

}  // namespace

SOK_VECTOR_CLONES bool all_in_range(const Key* ids, std::int64_t count, std::int64_t rows) {
  // Without a way out of the loop, which would be one id at a time.
  std::uint64_t outside = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    outside |= static_cast<std::uint64_t>(ids[i]) >= static_cast<std::uint64_t>(rows) ? 1 : 0;
  }
  return outside == 0;
}

SOK_VECTOR_CLONES void rows_of_ids(const Key* ids, std::int64_t count, std::int64_t rows,
                                   Row* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const bool inside = static_cast<std::uint64_t>(ids[i]) < static_cast<std::uint64_t>(rows);
    out[i] = inside ? static_cast<Row>(ids[i]) : kNoRow;
  }
}

#define SOK_DEFINE_SUM_ROWS(T, value, name)                                                       \
  SOK_VECTOR_CLONES void sum_rows(const T* const* rows, const float* weights, std::int64_t count, \
                                  std::int64_t width, bool start, float* out) {                   \
    sum_all(rows, weights, count, width, start, out);                                             \
  }
SOK_FOR_EACH_ROW_TYPE(SOK_DEFINE_SUM_ROWS)
#undef SOK_DEFINE_SUM_ROWS

SOK_VECTOR_CLONES void add_scaled(const float* in, float scale, std::int64_t width, float* out) {
  for (std::int64_t c = 0; c < width; ++c) out[c] += scale * in[c];
}

SOK_VECTOR_CLONES void set_scaled(const float* in, float scale, std::int64_t width, float* out) {
  for (std::int64_t c = 0; c < width; ++c) out[c] = scale * in[c];
}

SOK_VECTOR_CLONES void scale_row(float scale, std::int64_t width, float* out) {
  for (std::int64_t c = 0; c < width; ++c) out[c] *= scale;
}

SOK_VECTOR_CLONES float dot(const float* a, const float* b, std::int64_t width) {
  constexpr int kLanes = 8;
  float lanes[kLanes] = {};
  std::int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) {
    for (int i = 0; i < kLanes; ++i) lanes[i] += a[c + i] * b[c + i];
  }
  for (int i = 0; c < width; ++c, ++i) lanes[i] += a[c] * b[c];
  float total = 0;
  for (float lane : lanes) total += lane;
  return total;
}

SOK_VECTOR_CLONES void convert(const float* in, std::int64_t count, Half* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = from_float<Half>(in[i]);
}
SOK_VECTOR_CLONES void convert(const float* in, std::int64_t count, BFloat16* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = from_float<BFloat16>(in[i]);
}
void convert(const float* in, std::int64_t count, float* out) {
  if (in != out) std::memmove(out, in, static_cast<std::size_t>(count) * sizeof(float));
}
SOK_VECTOR_CLONES void convert(const Half* in, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = to_float(in[i]);
}
SOK_VECTOR_CLONES void convert(const BFloat16* in, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = to_float(in[i]);
}

}  // namespace sok::cpu
