// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "cc_ops/core/dedupe.h"
#include "cc_ops/core/hash.h"
#include "cc_ops/cpu/key_map.h"
#include "cc_ops/cpu/stages.h"
#include "cc_ops/cpu/vector_ops.h"

namespace sok::cpu {
namespace {

// Below this many ids a second thread costs more than it brings.
constexpr std::int64_t kIdsAPart = 4096;

}  // namespace

Merge::Merge(Executor& executor, const Table& table, std::vector<MergeFeature> features,
             std::int64_t width)
    : executor_(executor), features_(std::move(features)), width_(width) {
  std::int64_t ids = 0;
  for (const MergeFeature& feature : features_) ids += feature.bags.ids_count();
  const auto parts = static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(ids / kIdsAPart, 1, executor.threads()));
  parts_.resize(parts);
  executor.parallel_for(parts, ids * 10 / parts, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      number_keys(table, static_cast<std::uint32_t>(part), parts);
    }
  });
  for (Part& part : parts_) {
    dropped_ |= part.dropped;
    part.first = count_;
    count_ += static_cast<std::int64_t>(part.keys.size());
  }
}

void Merge::number_keys(const Table& table, std::uint32_t part_number, std::uint32_t parts) {
  Part& part = parts_[part_number];
  const IdRange range{table.config().rows, table.config().out_of_range};
  std::int64_t ids = 0;
  for (const MergeFeature& feature : features_) ids += feature.bags.ids_count();
  KeyMap numbers(ids / parts);
  part.contributions.reserve(ids / parts + ids / parts / 8);
  for (std::uint32_t f = 0; f < features_.size(); ++f) {
    const Bags& bags = features_[f].bags;
    for (std::int64_t bag = 0; bag < bags.bags; ++bag) {
      const std::int64_t begin = bags.begin(bag), end = bags.end(bag);
      if (begin == end) continue;
      const float scale = bags.scale(bag);
      for (std::int64_t i = begin; i < end; ++i) {
        Key key = bags.ids[i];
        if (!range.target(&key)) {
          part.dropped = true;
          continue;
        }
        const std::uint64_t hash = mix64(static_cast<std::uint64_t>(key));
        if (parts > 1 && scale_to(hash, parts) != part_number) continue;
        // A divisor of 0: the ids still belong to the batch, with a zero gradient.
        const float weighted = scale == 0.0f ? 0.0f : scale * bags.weight(i);
        part.contributions.push_back({f, numbers.number(key, hash), bag, weighted});
      }
    }
  }
  part.keys = numbers.keys();
}

void Merge::write(Key* keys, float* gradients) const {
  const auto parts = static_cast<std::int64_t>(parts_.size());
  std::int64_t contributions = 0;
  for (const Part& part : parts_) {
    contributions += static_cast<std::int64_t>(part.contributions.size());
  }
  executor_.parallel_for(
      parts, contributions * (5 + width_ / 4) / parts, [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> converted(width_);
        for (std::int64_t p = begin; p < end; ++p) {
          const Part& part = parts_[p];
          std::copy(part.keys.begin(), part.keys.end(), keys + part.first);
          std::uint32_t started = 0;
          for (const Contribution& c : part.contributions) {
            const Columns& columns = features_[c.feature].gradient;
            const float* g = nullptr;
            with_row_type(columns.type, [&](auto type) {
              using T = decltype(type);
              const T* row = static_cast<const T*>(columns.data) + c.bag * width_;
              g = direct_or_converted(row, width_, converted.data());
            });
            float* sum = gradients + (part.first + c.number) * width_;
            if (c.scale == 0.0f) {
              // Not 0 * g: a gradient that is not finite must not leak through a zero divisor.
              if (c.number == started) std::fill_n(sum, width_, 0.0f);
            } else if (c.number == started) {
              set_scaled(g, c.scale, width_, sum);
            } else {
              add_scaled(g, c.scale, width_, sum);
            }
            // Keys are numbered in the order of their first contribution.
            if (c.number == started) ++started;
          }
        }
      });
}

Status max_norm_gradients(Executor& executor, const Table& table, const Key* keys,
                          std::int64_t count, float max_norm, float* gradients) {
  const std::int64_t width = table.config().dimension;
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
