// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/catch_up.h"

#include <algorithm>
#include <cmath>

namespace sok::cpu {
namespace {

constexpr const char* kStepsPlane = "lazy_global.steps";
constexpr const char* kDecayPlane = "lazy_global.decay";

// Before a float loses digits of them: all rows catch up, and both count from 0 again.
constexpr float kMostSteps = 1 << 23;
constexpr double kMostDecay = 8.0;

constexpr int kMostStates = 3;

struct LagPlanes {
  PlaneRef<float> steps, decay;

  explicit LagPlanes(const Table& table)
      : steps(table.plane<float>(table.plane_index(kStepsPlane))),
        decay(table.plane<float>(table.plane_index(kDecayPlane))) {}
};

// Applies the steps that each row missed. Rows must be different, and lag behind.
template <typename O, typename T>
void apply_missed(const Table& table, const Row* rows, std::int64_t count) {
  const Lag& lag = table.lag();
  const O rule(lag.hyper.data(), 1);
  const LagPlanes planes(table);
  const PlaneRef<T> values = table.template plane<T>(0);
  const auto specs = lag.optimizer->planes(values.width, lag.hyper);
  PlaneRef<float> states[kMostStates];
  for (int k = 0; k < O::kStateCount; ++k) {
    states[k] = table.plane<float>(table.plane_index(specs[k].name));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const Row row = rows[i];
    const auto missed = rule.missed(lag.steps - *planes.steps.row(row));
    const float keep = static_cast<float>(std::exp(lag.decay - *planes.decay.row(row)));
    T* weights = values.row(row);
    for (std::int64_t c = 0; c < values.width; ++c) {
      float s[kMostStates] = {};
      for (int k = 0; k < O::kStateCount; ++k) s[k] = states[k].row(row)[c];
      weights[c] = from_float<T>(keep * rule.catch_up(missed, to_float(weights[c]), s));
      for (int k = 0; k < O::kStateCount; ++k) states[k].row(row)[c] = s[k];
    }
  }
}

void apply_missed(Executor& executor, const Table& table, const std::vector<Row>& rows) {
  executor.parallel_for(static_cast<std::int64_t>(rows.size()), 50 + table.config().dimension * 2,
                        [&](std::int64_t begin, std::int64_t end) {
                          with_optimizer(table.lag().optimizer->id, [&](auto* functor) {
                            using O = std::remove_pointer_t<decltype(functor)>;
                            with_row_type(table.config().row_type, [&](auto row_type) {
                              if constexpr (O::kCatchUp != CatchUp::kNone) {
                                apply_missed<O, decltype(row_type)>(table, rows.data() + begin,
                                                                    end - begin);
                              }
                            });
                          });
                        });
}

void stamp(const Table& table, const Row* rows, std::int64_t count) {
  const LagPlanes planes(table);
  for (std::int64_t i = 0; i < count; ++i) {
    if (rows[i] == kNoRow) continue;
    *planes.steps.row(rows[i]) = table.lag().steps;
    *planes.decay.row(rows[i]) = static_cast<float>(table.lag().decay);
  }
}

void set_clock(Table& table, float steps, double decay) {
  table.lag().steps = steps;
  table.lag().decay = decay;
  table.set_initial(table.plane_index(kStepsPlane), steps);
  table.set_initial(table.plane_index(kDecayPlane), static_cast<float>(decay));
}

}  // namespace

void catch_up(Executor& executor, Table& table, const Row* rows, std::int64_t count) {
  if (!lags(table)) return;
  const LagPlanes planes(table);
  std::vector<Row> behind;
  for (std::int64_t i = 0; i < count; ++i) {
    if (rows[i] != kNoRow && *planes.steps.row(rows[i]) != table.lag().steps) {
      behind.push_back(rows[i]);
    }
  }
  std::sort(behind.begin(), behind.end());
  behind.erase(std::unique(behind.begin(), behind.end()), behind.end());
  table.preserve(executor, behind.data(), static_cast<std::int64_t>(behind.size()));
  apply_missed(executor, table, behind);
  stamp(table, behind.data(), static_cast<std::int64_t>(behind.size()));
}

void catch_up(Executor& executor, Table& table, const std::vector<IdSpan>& ids) {
  if (!lags(table)) return;
  std::vector<Row> rows;
  for (const IdSpan& span : ids) {
    rows.resize(span.count);
    table.find(span.ids, span.count, rows.data());
    catch_up(executor, table, rows.data(), span.count);
  }
}

void catch_up(Executor& executor, Table& table) {
  if (!lags(table)) return;
  std::vector<Key> keys;
  std::vector<Row> rows;
  table.entries(&keys, &rows);
  const auto count = static_cast<std::int64_t>(rows.size());
  table.preserve(executor, rows.data(), count);
  catch_up(executor, table, rows.data(), count);
  set_clock(table, 0, 0);
  stamp(table, rows.data(), count);
}

Status check_catch_up(const OptimizerSpec& optimizer, const float* hyper) {
  if (optimizer.catch_up == CatchUp::kNone) {
    return invalid_argument("update: optimizer '", optimizer.name,
                            "' has no closed form for the steps that a row missed; use the reach "
                            "'global' or 'local'");
  }
  if (optimizer.catch_up == CatchUp::kMoves && hyper[1] != 0.0f) {
    return invalid_argument("update: optimizer '", optimizer.name, "' with weight decay ", hyper[1],
                            " has no closed form for the steps that a row missed; use the reach "
                            "'global' or 'local'");
  }
  if (!(hyper[0] * hyper[1] < 1.0f)) {
    return invalid_argument("update: learning rate ", hyper[0], " times weight decay ", hyper[1],
                            " must be below 1 in the reach 'lazy_global'");
  }
  return {};
}

std::vector<PlaneSpec> lag_planes() { return {{kStepsPlane, 1, 0}, {kDecayPlane, 1, 0}}; }

void change_rule(Executor& executor, Table& table, const OptimizerSpec* optimizer,
                 const float* hyper) {
  Lag& lag = table.lag();
  // The learning rate and the weight decay may change; their effect is in the planes already.
  const bool same =
      optimizer != nullptr && lag.optimizer == optimizer &&
      std::equal(lag.hyper.begin() + Common::kCount, lag.hyper.end(), hyper + Common::kCount);
  if (same) return;
  catch_up(executor, table);
  lag.optimizer = optimizer;
  lag.hyper.clear();
  if (optimizer != nullptr) lag.hyper.assign(hyper, hyper + optimizer->hyper.size());
}

void count_step(Executor& executor, Table& table, const float* hyper, const Row* rows,
                std::int64_t count) {
  const Lag& lag = table.lag();
  set_clock(table, lag.steps + 1, lag.decay + std::log1p(-double{hyper[0]} * hyper[1]));
  stamp(table, rows, count);
  if (lag.steps >= kMostSteps || std::abs(lag.decay) >= kMostDecay) catch_up(executor, table);
}

}  // namespace sok::cpu
