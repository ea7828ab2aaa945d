// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>

#include "cc_ops/cpu/stages.h"

namespace sok::cpu {

bool all_finite(Executor& executor, const std::vector<Values>& values) {
  // So many at a time without a branch, which the compiler makes vectors of.
  constexpr std::int64_t kTogether = 1024;
  std::atomic<bool> finite{true};
  for (const Values& each : values) {
    with_row_type(each.type, [&](auto type) {
      const auto* data = static_cast<const decltype(type)*>(each.data);
      executor.parallel_for(each.count, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t at = begin; at < end && finite; at += kTogether) {
          const std::int64_t last = std::min(end, at + kTogether);
          unsigned here = 1;
          for (std::int64_t i = at; i < last; ++i)
            here &= static_cast<unsigned>(is_finite(data[i]));
          if (here == 0) finite = false;
        }
      });
    });
  }
  return finite;
}

bool bags_finite(Executor& executor, const std::vector<BagGradients>& gradients) {
  std::int64_t ids = 0;
  for (const BagGradients& each : gradients) ids += each.bags.ids_count();
  std::atomic<bool> finite{true};
  for (const BagGradients& each : gradients) {
    with_row_type(each.gradient.type, [&](auto type) {
      const auto* data = static_cast<const decltype(type)*>(each.gradient.data);
      executor.parallel_for(each.bags.bags, each.width, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t bag = begin; bag < end && finite; ++bag) {
          if (each.bags.largest_coefficient(bag) == 0.0f) continue;
          const float bound = finite_bound(each.bags, bag, ids);
          unsigned here = 1;
          for (std::int64_t c = 0; c < each.width; ++c) {
            const float g = to_float(data[bag * each.width + c]);
            here &= static_cast<unsigned>(g <= bound) & static_cast<unsigned>(g >= -bound);
          }
          if (here == 0) finite = false;
        }
      });
    });
  }
  return finite;
}

}  // namespace sok::cpu
