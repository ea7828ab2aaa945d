// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "cc_ops/cpu/bag_reader.h"
#include "cc_ops/cpu/bag_task.h"
#include "cc_ops/cpu/rank_stages.h"
#include "cc_ops/cpu/vector_ops.h"

namespace sok::cpu {
namespace {

template <typename T>
PlaneRef<T> plane_of(const CombineFeature& feature) {
  return {static_cast<T*>(feature.rows.data), nullptr,
          SlabShape::for_rows(static_cast<std::uint64_t>(feature.row_count)), feature.width};
}

// Positions as row numbers.
std::vector<Row> rows_of(const CombineFeature& feature, std::int64_t first, std::int64_t last) {
  std::vector<Row> rows(last - first);
  for (std::int64_t i = first; i < last; ++i) {
    const Key position = feature.bags.ids[i];
    rows[i - first] = position < 0 ? kNoRow : static_cast<Row>(position);
  }
  return rows;
}

// One id's share in the gradient of its row.
struct Share {
  std::uint32_t feature;
  float scale;
  std::int64_t bag;
};

}  // namespace

void combine(Executor& executor, const std::vector<CombineFeature>& features) {
  std::vector<BagTask> tasks;
  std::int64_t ids = 0, width = 0;
  for (std::size_t f = 0; f < features.size(); ++f) {
    split_bags(f, features[f].bags, &tasks);
    ids += features[f].bags.ids_count();
    width = std::max(width, features[f].width);
  }
  const auto count = static_cast<std::int64_t>(tasks.size());
  const std::int64_t cost = ids / std::max<std::int64_t>(1, count) * (10 + width / 2) + 1000;
  executor.parallel_for(count, cost, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const CombineFeature& feature = features[tasks[t].feature];
      const std::int64_t first = feature.bags.begin(tasks[t].first_bag);
      const std::int64_t last = feature.bags.end(tasks[t].last_bag - 1);
      const std::vector<Row> rows = rows_of(feature, first, last);
      with_row_type(feature.rows.type, [&](auto row_type) {
        using T = decltype(row_type);
        BagReader<T> reader(plane_of<T>(feature), feature.bags, 0, first, last, rows.data());
        with_row_type(feature.output.type, [&](auto output_type) {
          using O = decltype(output_type);
          O* out = static_cast<O*>(feature.output.data) + tasks[t].first_bag * feature.width;
          for (std::int64_t bag = tasks[t].first_bag; bag < tasks[t].last_bag; ++bag) {
            convert(reader.combine(bag, direct(out)), feature.width, out);
            out += feature.width;
          }
        });
      });
    }
  });
}

void combine_row_gradients(Executor& executor, const std::vector<CombineFeature>& features,
                           std::int64_t row_count, std::int64_t width, float* gradients) {
  // Shares sorted by row, by counting: within a row they keep the order of the batch.
  std::vector<std::int64_t> begin(row_count + 2, 0);
  for (const CombineFeature& feature : features) {
    const std::int64_t ids = feature.bags.ids_count();
    for (std::int64_t i = 0; i < ids; ++i) {
      if (feature.bags.ids[i] >= 0) ++begin[feature.bags.ids[i] + 2];
    }
  }
  for (std::int64_t row = 0; row < row_count; ++row) begin[row + 2] += begin[row + 1];
  std::vector<Share> shares(begin[row_count + 1]);
  for (std::uint32_t f = 0; f < features.size(); ++f) {
    const Bags& bags = features[f].bags;
    for (std::int64_t bag = 0; bag < bags.bags; ++bag) {
      const float scale = bags.scale(bag);
      for (std::int64_t i = bags.begin(bag); i < bags.end(bag); ++i) {
        if (bags.ids[i] < 0) continue;
        const float share = scale == 0.0f ? 0.0f : scale * bags.weight(i);
        shares[begin[bags.ids[i] + 1]++] = {f, share, bag};
      }
    }
  }
  const auto mean = static_cast<std::int64_t>(shares.size()) / std::max<std::int64_t>(1, row_count);
  executor.parallel_for(
      row_count, (mean + 1) * (5 + width / 4), [&](std::int64_t first, std::int64_t last) {
        std::vector<float> converted(width);
        for (std::int64_t row = first; row < last; ++row) {
          float* sum = gradients + row * width;
          std::fill_n(sum, width, 0.0f);
          for (std::int64_t s = begin[row]; s < begin[row + 1]; ++s) {
            const Share& share = shares[s];
            // Not 0 * g: a gradient that is not finite must not leak through a zero divisor.
            if (share.scale == 0.0f) continue;
            const Columns& columns = features[share.feature].output;
            with_row_type(columns.type, [&](auto type) {
              const auto* g = static_cast<const decltype(type)*>(columns.data) + share.bag * width;
              add_scaled(direct_or_converted(g, width, converted.data()), share.scale, width, sum);
            });
          }
        }
      });
}

void combine_weight_gradients(Executor& executor, const CombineFeature& feature, float* gradients) {
  const Bags& bags = feature.bags;
  const std::int64_t width = feature.width;
  with_row_type(feature.rows.type, [&](auto row_type) {
    using T = decltype(row_type);
    executor.parallel_for(bags.bags, 100 + width, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t first = bags.begin(begin), last = bags.begin(end);
      const std::vector<Row> rows = rows_of(feature, first, last);
      BagReader<T> reader(plane_of<T>(feature), bags, 0, first, last, rows.data());
      bag_weight_gradients(reader, bags, begin, end, static_cast<const float*>(feature.output.data),
                           width, gradients);
    });
  });
}

}  // namespace sok::cpu
