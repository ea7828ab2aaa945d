// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// What the stages of one rank work on: the ids of one feature in bags. On a GPU the pointers are
// the device's; only the counts may be read on the host.
#ifndef SOK_CORE_BATCH_H_
#define SOK_CORE_BATCH_H_

#include <cstdint>

#include "cc_ops/core/combine.h"
#include "cc_ops/core/host_device.h"
#include "cc_ops/core/status.h"
#include "cc_ops/core/types.h"

namespace sok {

// Bag b holds the ids [begin(b), end(b)): by row splits, or all bags `hotness` long.
struct Bags {
  const Key* ids = nullptr;
  const float* weights = nullptr;            // one an id; null: all 1
  const std::int64_t* row_splits = nullptr;  // bags + 1 entries; null: all bags are `hotness` long
  std::int64_t bags = 0;
  std::int64_t hotness = 1;
  Combiner combiner = Combiner::kSum;
  std::int64_t known_count = -1;  // of ids; -1: as the row splits say

  SOK_HD std::int64_t begin(std::int64_t bag) const {
    return row_splits != nullptr ? row_splits[bag] : bag * hotness;
  }
  SOK_HD std::int64_t end(std::int64_t bag) const { return begin(bag + 1); }
  // A bag's end inside the ids there are, whatever the row splits say: a device cannot check them
  // before it reads them.
  SOK_HD std::int64_t inside(std::int64_t i) const {
    if (known_count < 0) return i;
    return i < 0 ? 0 : i > known_count ? known_count : i;
  }
  std::int64_t ids_count() const { return known_count >= 0 ? known_count : begin(bags); }
  SOK_HD float weight(std::int64_t i) const { return weights != nullptr ? weights[i] : 1.0f; }

  // What the weighted sum of a bag is multiplied with.
  SOK_HD float scale(std::int64_t bag) const {
    if (combiner == Combiner::kSum) return 1.0f;
    const std::int64_t first = inside(begin(bag)), last = inside(end(bag));
    if (weights == nullptr) return scale_of(last - first);
    Divisor divisor;
    for (std::int64_t i = first; i < last; ++i) divisor.add(combiner, weights[i]);
    return divisor.scale(combiner);
  }
  // The same for a bag of so many ids without weights.
  SOK_HD float scale_of(std::int64_t count) const {
    Divisor divisor;
    divisor.total = static_cast<float>(count);
    return divisor.scale(combiner);
  }

  // The largest size of what the bag's gradient is multiplied with on its way to a row; 0: it
  // reaches none.
  SOK_HD float largest_coefficient(std::int64_t bag) const {
    const std::int64_t first = inside(begin(bag)), last = inside(end(bag));
    if (first >= last) return 0.0f;
    const float of_bag = scale(bag);
    float largest = weights == nullptr ? 1.0f : 0.0f;
    for (std::int64_t i = first; weights != nullptr && i < last; ++i) {
      const float size = weights[i] < 0.0f ? -weights[i] : weights[i];
      if (!is_finite(size)) return size;
      if (size > largest) largest = size;
    }
    return of_bag * largest;
  }
};

// What is wrong with entry number `entry` of a feature's row splits, `value` after `before`.
inline Status bad_row_splits(int feature, std::int64_t entry, std::int64_t value,
                             std::int64_t before, std::int64_t ids) {
  if (entry == 0 && value != 0) {
    return invalid_argument("feature ", feature, ": row_splits must start at 0, not ", value);
  }
  if (value < before) {
    return invalid_argument("feature ", feature, ": row_splits must not decrease, but entry ",
                            entry, " is ", value, " after ", before);
  }
  return invalid_argument("feature ", feature, ": row_splits ends at ", value, ", but there are ",
                          ids, " ids");
}

// Columns of one feature's output or of its gradient, in one of the row types.
struct Columns {
  RowType type = RowType::kFloat32;
  void* data = nullptr;
};

// A feature's bags with the gradient of its output, [bags, width].
struct BagGradients {
  Bags bags;
  Columns gradient;
  std::int64_t width = 0;
};

// What a bag's gradient must not exceed so that no sum of rows' gradients, of so many ids at most,
// is infinite; below zero: it reaches rows as infinite or NaN whatever it is.
SOK_HD float finite_bound(const Bags& bags, std::int64_t bag, std::int64_t ids) {
  const float coefficient = bags.largest_coefficient(bag);
  if (!is_finite(coefficient)) return -1.0f;
  const float most = 1.7e38f / static_cast<float>(ids);
  return coefficient <= 1.0f ? most : most / coefficient;
}

// Any number of values of a row type.
struct Values {
  RowType type = RowType::kFloat32;
  const void* data = nullptr;
  std::int64_t count = 0;
};

}  // namespace sok

#endif  // SOK_CORE_BATCH_H_
