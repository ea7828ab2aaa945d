// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_TESTS_NATIVE_BATCH_H_
#define SOK_TESTS_NATIVE_BATCH_H_

#include <cmath>
#include <vector>

#include "tests/native/testing.h"

namespace sok::cpu {

// A batch of ragged bags, with weights.
struct Batch {
  std::vector<Key> ids;
  std::vector<float> weights;
  std::vector<std::int64_t> splits = {0};
  std::vector<float> gradients;  // [bags, width]

  Batch(Seeded& random, std::int64_t bags, std::int64_t width, std::uint64_t keys) {
    for (std::int64_t bag = 0; bag < bags; ++bag) {
      for (std::uint64_t left = random.below(9); left > 0; --left) {
        ids.push_back(static_cast<Key>(random.below(keys)));
        // Quarters: their sum is exact, and either 0 or far from it.
        weights.push_back(static_cast<float>(random.below(17)) / 4.0f - 2.0f);
      }
      splits.push_back(static_cast<std::int64_t>(ids.size()));
    }
    gradients.resize(bags * width);
    for (float& g : gradients) g = number(random);
  }
  static float number(Seeded& random) {
    return static_cast<float>(random.below(4001)) / 1000.0f - 2.0f;
  }
  std::int64_t bag_count() const { return static_cast<std::int64_t>(splits.size()) - 1; }

  Bags bags(Combiner combiner, bool weighted) const {
    Bags result;
    result.ids = ids.data();
    result.weights = weighted ? weights.data() : nullptr;
    result.row_splits = splits.data();
    result.bags = bag_count();
    result.combiner = combiner;
    return result;
  }

  // What the weighted sum of a bag is multiplied with.
  double scale(std::int64_t bag, Combiner combiner, bool weighted) const {
    double sum = 0, squares = 0;
    for (std::int64_t i = splits[bag]; i < splits[bag + 1]; ++i) {
      const double w = weighted ? double{weights[i]} : 1.0;
      sum += w;
      squares += w * w;
    }
    if (combiner == Combiner::kSum) return 1.0;
    const double divisor = combiner == Combiner::kMean ? sum : std::sqrt(squares);
    return divisor == 0 ? 0.0 : 1.0 / divisor;
  }
};

}  // namespace sok::cpu

#endif  // SOK_TESTS_NATIVE_BATCH_H_
