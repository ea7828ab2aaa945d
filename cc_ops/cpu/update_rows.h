// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CPU_UPDATE_ROWS_H_
#define SOK_CPU_UPDATE_ROWS_H_

#include <cstdint>
#include <vector>

#include "cc_ops/core/optimizer_spec.h"
#include "cc_ops/cpu/table.h"

namespace sok::cpu {

constexpr int kMostStates = 3;

// One optimizer on one table in one step.
struct RowUpdate {
  // Of a table that has the optimizer's planes, for as long as `hyper` lives.
  static RowUpdate of(const Table& table, const OptimizerSpec& optimizer,
                      const std::vector<float>& hyper, std::int64_t step, float scale);

  const Table* table = nullptr;
  OptimizerId optimizer = OptimizerId::kSgd;
  const float* hyper = nullptr;
  std::int64_t step = 1;
  float scale = 1;  // multiplied with every gradient: clipping, loss scale
  int state_count = 0;
  PlaneRef<float> states[kMostStates];
};

// Rows that should be on their way into the cache while others are updated.
constexpr std::int64_t kRowsAhead = 32;

// Brings rows and their states into the cache.
void prefetch_rows(const RowUpdate& update, const Row* rows, std::int64_t count);

// Updates rows[i] with gradients[i]; kNoRow is passed over. Rows must be different.
void update_rows(const RowUpdate& update, const Row* rows, const float* const* gradients,
                 std::int64_t count);

}  // namespace sok::cpu

#endif  // SOK_CPU_UPDATE_ROWS_H_
