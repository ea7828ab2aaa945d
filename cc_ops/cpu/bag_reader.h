// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CPU_BAG_READER_H_
#define SOK_CPU_BAG_READER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cc_ops/core/batch.h"
#include "cc_ops/cpu/table.h"
#include "cc_ops/cpu/vector_ops.h"

namespace sok::cpu {

// Where a float result may be built in place; other types need a scratch row.
inline float* direct(float* out) { return out; }
template <typename T>
float* direct(T*) {
  return nullptr;
}

// Reads the rows of the ids [first, last) of one feature, bag by bag, and combines them. Rows are
// fetched into the cache a fixed number of ids ahead of the arithmetic.
template <typename T>
class BagReader {
 public:
  // rows[i] is the row of id first + i, or kNoRow for one that reads the table's default.
  BagReader(const Table& table, const Bags& bags, float max_norm, std::int64_t first,
            std::int64_t last, const Row* rows)
      : BagReader(table.plane<T>(0), bags, max_norm, first, last, rows) {
    table_ = &table;
  }
  // Rows of a plane that belongs to no table: kNoRow reads zeros.
  BagReader(PlaneRef<T> plane, const Bags& bags, float max_norm, std::int64_t first,
            std::int64_t last, const Row* rows)
      : bags_(bags),
        plane_(plane),
        max_norm_(max_norm),
        first_(first),
        last_(last),
        rows_(rows),
        fetched_(first) {}

  // The combined row of a bag, in `out` if that is given, else in a scratch row valid until the
  // next call. Bags must be asked for in order.
  const float* combine(std::int64_t bag, float* out) {
    if (out == nullptr) {
      scratch_.resize(plane_.width);
      out = scratch_.data();
    }
    const float scale = bags_.scale(bag);
    const std::int64_t end = bags_.end(bag);
    std::int64_t i = bags_.begin(bag);
    if (i == end || scale == 0.0f) {
      std::fill_n(out, plane_.width, 0.0f);
      return out;
    }
    for (bool start = true; i < end; start = false) {
      const std::int64_t count = std::min(kPiece, end - i);
      fetch(i + count + kAhead);
      const T* pointers[kPiece];
      for (std::int64_t k = 0; k < count; ++k) pointers[k] = row(i + k, k);
      const float* weights = bags_.weights == nullptr ? nullptr : bags_.weights + i;
      float clipped[kPiece];
      if (max_norm_ > 0) {
        for (std::int64_t k = 0; k < count; ++k) {
          clipped[k] = (weights == nullptr ? 1.0f : weights[k]) * norm_scale(pointers[k]);
        }
        weights = clipped;
      }
      sum_rows(pointers, weights, count, plane_.width, start, out);
      i += count;
    }
    if (scale != 1.0f) scale_row(scale, plane_.width, out);
    return out;
  }

  // One id's row as floats, clipped to max_norm, valid until the next call.
  const float* read(std::int64_t i) {
    scratch_.resize(plane_.width);
    const T* pointer = row(i, 0);
    convert(pointer, plane_.width, scratch_.data());
    if (max_norm_ > 0) scale_row(norm_scale(pointer), plane_.width, scratch_.data());
    return scratch_.data();
  }

 private:
  static constexpr std::int64_t kPiece = 32;  // ids combined at a time
  static constexpr std::int64_t kAhead = 48;  // ids whose rows are on their way
  static constexpr std::int64_t kLine = 64 / sizeof(T);

  void fetch(std::int64_t until) {
    for (until = std::min(until, last_); fetched_ < until; ++fetched_) {
      const Row r = rows_[fetched_ - first_];
      if (r == kNoRow) continue;
      const T* row = plane_.row(r);
      const std::int64_t ahead = std::min<std::int64_t>(plane_.width, 16 * kLine);
      // Into the L2, which takes more lines at a time than the L1.
      for (std::int64_t c = 0; c < ahead; c += kLine) __builtin_prefetch(row + c, 0, 2);
    }
  }

  const T* row(std::int64_t i, std::int64_t place) {
    const Row r = rows_[i - first_];
    if (r != kNoRow) return plane_.row(r);
    if (defaults_.empty()) {
      defaults_.resize(kPiece * plane_.width);
      default_floats_.resize(plane_.width);
    }
    if (table_ != nullptr) table_->default_row(bags_.ids[i], default_floats_.data());
    T* out = defaults_.data() + place * plane_.width;
    convert(default_floats_.data(), plane_.width, out);
    return out;
  }

  float norm_scale(const T* row) {
    double square = 0;
    for (std::int64_t c = 0; c < plane_.width; ++c) {
      square += static_cast<double>(to_float(row[c])) * static_cast<double>(to_float(row[c]));
    }
    const double norm = std::sqrt(square);
    return norm > max_norm_ ? static_cast<float>(max_norm_ / norm) : 1.0f;
  }

  const Table* table_ = nullptr;
  const Bags& bags_;
  PlaneRef<T> plane_;
  float max_norm_;
  std::int64_t first_, last_;
  const Row* rows_;
  std::int64_t fetched_;
  std::vector<float> scratch_, default_floats_;
  std::vector<T> defaults_;
};

// The gradients of the weights of the bags [first_bag, last_bag), for an output gradient
// [bags, width] in float.
template <typename T>
void bag_weight_gradients(BagReader<T>& reader, const Bags& bags, std::int64_t first_bag,
                          std::int64_t last_bag, const float* output_gradient, std::int64_t width,
                          float* gradients) {
  std::vector<float> output(width);
  for (std::int64_t bag = first_bag; bag < last_bag; ++bag) {
    const float* g = output_gradient + bag * width;
    const float scale = bags.scale(bag);
    const float dot_output = dot(g, reader.combine(bag, output.data()), width);
    for (std::int64_t i = bags.begin(bag); i < bags.end(bag); ++i) {
      gradients[i] = weight_gradient(bags.combiner, scale, bags.weight(i),
                                     dot(g, reader.read(i), width), dot_output);
    }
  }
}

}  // namespace sok::cpu

#endif  // SOK_CPU_BAG_READER_H_
