// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/merge.h"

#include <algorithm>
#include <cmath>

#include "cc_ops/cpu/catch_up.h"
#include "cc_ops/cpu/stages.h"
#include "cc_ops/cpu/vector_ops.h"

namespace sok::cpu {
namespace {

// Gradients on their way into the cache while others are summed.
constexpr std::ptrdiff_t kSharesAhead = 16;

}  // namespace

Merge::Merge(Executor& executor, const Table& table, const std::vector<MergeFeature>& features,
             std::int64_t width)
    : width_(width) {
  std::vector<Bags> bags;
  for (const MergeFeature& feature : features) {
    bags.push_back(feature.bags);
    gradients_.push_back({feature.gradient.type, static_cast<const char*>(feature.gradient.data),
                          width * row_type_bytes(feature.gradient.type)});
  }
  grouping_ = grouping_of(executor, table, bags);
}

const float* Merge::sum(const Grouping::Part& part, std::int64_t i, float* scratch) const {
  constexpr int kPiece = 32;
  const Grouping::Share* share = part.shares.get() + part.begin[i];
  const Grouping::Share* const end = part.shares.get() + part.begin[i + 1];
  const Grouping::Share* const last = part.shares.get() + part.begin.back();
  // Shares lie in the order in which keys are summed: those of the next keys follow.
  const auto prefetch = [this](const Grouping::Share* share) {
    const char* gradient = gradients_[share->feature].row(share->bag);
    for (std::int64_t byte = 0; byte < std::min<std::int64_t>(4 * width_, 1024); byte += 64) {
      __builtin_prefetch(gradient + byte);
    }
  };
  if (end - share == 1 && share->scale == 1.0f &&
      gradients_[share->feature].type == RowType::kFloat32) {
    prefetch(share + kSharesAhead < last ? share + kSharesAhead : share);
    return reinterpret_cast<const float*>(gradients_[share->feature].row(share->bag));
  }
  bool start = true;
  while (share != end) {
    // As many as have gradients of one type.
    const RowType type = gradients_[share->feature].type;
    const void* rows[kPiece];
    float scales[kPiece];
    int count = 0;
    bool scaled = false;
    for (; share != end && count < kPiece && gradients_[share->feature].type == type; ++share) {
      // Not 0 * g: a gradient that is not finite must not leak through a zero divisor.
      prefetch(share + kSharesAhead < last ? share + kSharesAhead : share);
      if (share->scale == 0.0f) continue;
      rows[count] = gradients_[share->feature].row(share->bag);
      scales[count++] = share->scale;
      scaled |= share->scale != 1.0f;
    }
    if (count == 0) continue;
    with_row_type(type, [&](auto row_type) {
      using T = decltype(row_type);
      const T* typed[kPiece];
      for (int k = 0; k < count; ++k) typed[k] = static_cast<const T*>(rows[k]);
      sum_rows(typed, scaled ? scales : nullptr, count, width_, start, scratch);
    });
    start = false;
  }
  if (start) std::fill_n(scratch, width_, 0.0f);
  return scratch;
}

void Merge::write(Executor& executor, Key* keys, float* gradients) const {
  const std::vector<Grouping::Part>& all = grouping_->parts();
  const auto parts = static_cast<std::int64_t>(all.size());
  executor.parallel_for(parts, count() * (10 + width_ / 4) / parts,
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t p = begin; p < end; ++p) {
                            const Grouping::Part& part = all[p];
                            std::copy(part.keys.begin(), part.keys.end(), keys + part.first);
                            for (std::int64_t i = 0; i < part.count(); ++i) {
                              float* out = gradients + (part.first + i) * width_;
                              const float* sum = this->sum(part, i, out);
                              if (sum != out) convert(sum, width_, out);
                            }
                          }
                        });
}

Status max_norm_gradients(Executor& executor, Table& table, const Key* keys, std::int64_t count,
                          float max_norm, float* gradients) {
  const std::int64_t width = table.config().dimension;
  catch_up(executor, table, {{keys, count}});
  executor.parallel_for(count, 50 + width, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(width);
    for (std::int64_t i = begin; i < end; ++i) {
      Row number;
      table.find(keys + i, 1, &number);
      if (number == kNoRow) {
        table.default_row(keys[i], row.data());
      } else {
        with_row_type(table.config().row_type, [&](auto type) {
          convert(table.plane<decltype(type)>(0).row(number), width, row.data());
        });
      }
      const float square = dot(row.data(), row.data(), width);
      if (square <= max_norm * max_norm) continue;
      // d/dr of r * max_norm / |r|: the part of the gradient along r vanishes.
      float* g = gradients + i * width;
      add_scaled(row.data(), -dot(row.data(), g, width) / square, width, g);
      scale_row(max_norm / std::sqrt(square), width, g);
    }
  });
  return {};
}

}  // namespace sok::cpu
