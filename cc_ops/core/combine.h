// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Combiners: how the rows of one bag become one vector.
//
//   sum    sum of w r
//   mean   sum of w r / sum of w
//   sqrtn  sum of w r / sqrt(sum of w^2)
//
// A divisor of 0 gives a zero vector and zero gradients; one that is not finite gives NaN.
#ifndef SOK_CORE_COMBINE_H_
#define SOK_CORE_COMBINE_H_

#include <cstdint>

#include "cc_ops/core/host_device.h"

namespace sok {

enum class Combiner : int { kSum = 0, kMean = 1, kSqrtn = 2 };

// The names in the order of the enumeration: the one list for ops and Python.
constexpr const char* kCombinerNames[] = {"sum", "mean", "sqrtn"};

// The divisor of a bag, summed id by id in the order of the bag.
struct Divisor {
  float total = 0;

  SOK_HD void add(Combiner combiner, float weight) {
    total += combiner == Combiner::kSqrtn ? weight * weight : weight;
  }
  // What the weighted sum is multiplied with.
  SOK_HD float scale(Combiner combiner) const {
    if (combiner == Combiner::kSum) return 1.0f;
    if (total == 0.0f) return 0.0f;
    // Not 1 / infinity, a zero that would pass for the divisor's own.
    if (!(total - total == 0.0f)) return total - total;
    return combiner == Combiner::kMean ? 1.0f / total : 1.0f / sqrt_rn(total);
  }
};

// The derivative of a bag's output with respect to one weight, dotted with the output's gradient:
// `dot_row` is gradient . row, `dot_output` is gradient . output.
SOK_HD float weight_gradient(Combiner combiner, float scale, float weight, float dot_row,
                             float dot_output) {
  if (combiner == Combiner::kSum) return dot_row;
  if (scale == 0.0f) return 0.0f;
  const float pull = combiner == Combiner::kMean ? dot_output : weight * scale * dot_output;
  return scale * (dot_row - pull);
}

}  // namespace sok

#endif  // SOK_CORE_COMBINE_H_
