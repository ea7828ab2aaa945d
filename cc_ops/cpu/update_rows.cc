// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/update_rows.h"

#include "cc_ops/cpu/vector_ops.h"

namespace sok::cpu {
namespace {

// One row. `states` point at the row's states.
template <typename O, typename T>
__attribute__((always_inline)) inline void update_row(const O& optimizer, const Common& common,
                                                      T* weights, const float* gradient,
                                                      float scale, float* s0, float* s1, float* s2,
                                                      std::int64_t width) {
  if constexpr (O::kRowWise) {
    float square = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      square += (scale * gradient[c]) * (scale * gradient[c]);
    }
    const float prepared = optimizer.prepare_row(square / static_cast<float>(width), s0);
    for (std::int64_t c = 0; c < width; ++c) {
      float states[1] = {prepared};
      weights[c] = from_float<T>(
          update_column(common, optimizer, to_float(weights[c]), scale * gradient[c], states));
    }
  } else {
    for (std::int64_t c = 0; c < width; ++c) {
      float states[kMostStates] = {};
      if constexpr (O::kStateCount > 0) states[0] = s0[c];
      if constexpr (O::kStateCount > 1) states[1] = s1[c];
      if constexpr (O::kStateCount > 2) states[2] = s2[c];
      weights[c] = from_float<T>(
          update_column(common, optimizer, to_float(weights[c]), scale * gradient[c], states));
      if constexpr (O::kStateCount > 0) s0[c] = states[0];
      if constexpr (O::kStateCount > 1) s1[c] = states[1];
      if constexpr (O::kStateCount > 2) s2[c] = states[2];
    }
  }
}

// The compiler does not clone templates, so each pair of optimizer and row type gets a function of
// its own, chosen by the type of its first argument.
#define SOK_DEFINE_UPDATE(O, T)                                                              \
  SOK_VECTOR_CLONES void update_one(const O& optimizer, const Common& common,                \
                                    T* __restrict weights, const float* __restrict gradient, \
                                    float scale, float* __restrict s0, float* __restrict s1, \
                                    float* __restrict s2, std::int64_t width) {              \
    update_row(optimizer, common, weights, gradient, scale, s0, s1, s2, width);              \
  }
#define SOK_DEFINE_UPDATES(O) \
  SOK_DEFINE_UPDATE(O, float) \
  SOK_DEFINE_UPDATE(O, Half)  \
  SOK_DEFINE_UPDATE(O, BFloat16)
SOK_FOR_EACH_OPTIMIZER(SOK_DEFINE_UPDATES)
#undef SOK_DEFINE_UPDATES
#undef SOK_DEFINE_UPDATE

void prefetch_row(const void* row, std::int64_t bytes) {
  // Into the L2, which takes more lines at a time than the L1.
  for (std::int64_t at = 0; at < bytes && at < 1024; at += 64) {
    __builtin_prefetch(static_cast<const char*>(row) + at, 0, 2);
  }
}

}  // namespace

RowUpdate RowUpdate::of(const Table& table, const OptimizerSpec& optimizer,
                        const std::vector<float>& hyper, std::int64_t step, float scale) {
  RowUpdate update;
  update.table = &table;
  update.optimizer = optimizer.id;
  update.hyper = hyper.data();
  update.step = step;
  update.scale = scale;
  for (const PlaneSpec& plane : optimizer.planes(table.config().dimension, hyper)) {
    update.states[update.state_count++] = table.plane<float>(table.plane_index(plane.name));
  }
  return update;
}

void prefetch_rows(const RowUpdate& update, const Row* rows, std::int64_t count) {
  with_row_type(update.table->config().row_type, [&](auto row_type) {
    using T = decltype(row_type);
    const PlaneRef<T> values = update.table->template plane<T>(0);
    for (std::int64_t i = 0; i < count; ++i) {
      if (rows[i] == kNoRow) continue;
      prefetch_row(values.row(rows[i]), values.width * static_cast<std::int64_t>(sizeof(T)));
      for (int k = 0; k < update.state_count; ++k) {
        prefetch_row(update.states[k].row(rows[i]), update.states[k].width * 4);
      }
    }
  });
}

void update_rows(const RowUpdate& update, const Row* rows, const float* const* gradients,
                 std::int64_t count) {
  with_optimizer(update.optimizer, [&](auto* functor) {
    using O = std::remove_pointer_t<decltype(functor)>;
    const O optimizer(update.hyper, update.step);
    const Common common(update.hyper);
    with_row_type(update.table->config().row_type, [&](auto row_type) {
      using T = decltype(row_type);
      const PlaneRef<T> values = update.table->template plane<T>(0);
      const std::int64_t width = values.width;
      for (std::int64_t i = 0; i < count; ++i) {
        if (rows[i] == kNoRow) continue;
        float* s[kMostStates] = {};
        for (int k = 0; k < O::kStateCount; ++k) s[k] = update.states[k].row(rows[i]);
        update_one(optimizer, common, values.row(rows[i]), gradients[i], update.scale, s[0], s[1],
                   s[2], width);
      }
    });
  });
}

}  // namespace sok::cpu
