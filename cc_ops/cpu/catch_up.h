// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Updates that reach every row, as in a dense optimizer, but each row only when it is next read or
// updated: then it catches up with the steps that it missed, in closed form. Two planes of the
// table hold where a row stands: how many steps it has seen, and how much weight decay.
//
// Whoever reads rows calls catch_up first, alone with the table.
#ifndef SOK_CPU_CATCH_UP_H_
#define SOK_CPU_CATCH_UP_H_

#include <cstdint>
#include <vector>

#include "cc_ops/core/optimizer_spec.h"
#include "cc_ops/core/status.h"
#include "cc_ops/cpu/executor.h"
#include "cc_ops/cpu/table.h"

namespace sok::cpu {

// Whether rows may lag behind.
inline bool lags(const Table& table) {
  return table.lag().optimizer != nullptr && table.lag().steps > 0;
}

// Brings rows up to date: those of ids, those given (kNoRow and repetitions are passed over), or
// all.
void catch_up(Executor& executor, Table& table, const std::vector<IdSpan>& ids);
void catch_up(Executor& executor, Table& table, const Row* rows, std::int64_t count);
void catch_up(Executor& executor, Table& table);

// Refuses a rule that has no closed form.
Status check_catch_up(const OptimizerSpec& optimizer, const float* hyper);
// The planes that lazy updates need.
std::vector<PlaneSpec> lag_planes();

// Before an update by another rule than the last one's, or at once: brings all rows up to date,
// which may have to be done by the rule that they missed steps of. A null optimizer: not a lazy
// update.
void change_rule(Executor& executor, Table& table, const OptimizerSpec* optimizer,
                 const float* hyper);
// After a lazy update of rows that were up to date: the others have missed a step.
void count_step(Executor& executor, Table& table, const float* hyper, const Row* rows,
                std::int64_t count);

}  // namespace sok::cpu

#endif  // SOK_CPU_CATCH_UP_H_
