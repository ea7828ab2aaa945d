// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CPU_BAG_TASK_H_
#define SOK_CPU_BAG_TASK_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc_ops/core/batch.h"

namespace sok::cpu {

// Neighbouring bags of one feature: what one thread combines at a time.
struct BagTask {
  std::size_t feature;
  std::int64_t first_bag, last_bag;
};

// Cuts a feature's bags into tasks.
inline void split_bags(std::size_t feature, const Bags& bags, std::vector<BagTask>* tasks) {
  // Ids a task handles: enough to pay for its start, few enough to balance.
  constexpr std::int64_t kTaskIds = 2048;
  const std::int64_t mean =
      std::max<std::int64_t>(1, bags.bags == 0 ? 1 : bags.ids_count() / bags.bags);
  const std::int64_t step = std::max<std::int64_t>(1, kTaskIds / mean);
  for (std::int64_t bag = 0; bag < bags.bags; bag += step) {
    tasks->push_back({feature, bag, std::min(bag + step, bags.bags)});
  }
}

}  // namespace sok::cpu

#endif  // SOK_CPU_BAG_TASK_H_
