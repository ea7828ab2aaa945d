// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CPU_UPDATE_ROWS_H_
#define SOK_CPU_UPDATE_ROWS_H_

#include <cstdint>

#include "cc_ops/core/optimizer_spec.h"
#include "cc_ops/cpu/table.h"

namespace sok::cpu {

constexpr int kMostStates = 3;

// One optimizer on one table in one step.
struct RowUpdate {
  const Table* table = nullptr;
  OptimizerId optimizer = OptimizerId::kSgd;
  const float* hyper = nullptr;
  std::int64_t step = 1;
  float scale = 1;  // multiplied with every gradient: clipping, loss scale
  PlaneRef<float> states[kMostStates];
};

// Updates rows[i] with gradients[i]; kNoRow is passed over. Rows must be different.
void update_rows(const RowUpdate& update, const Row* rows, const float* const* gradients,
                 std::int64_t count);

}  // namespace sok::cpu

#endif  // SOK_CPU_UPDATE_ROWS_H_
