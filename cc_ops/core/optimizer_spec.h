// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The optimizers of update.h as data, for those who look one up by name: the update op, and Python
// through sok_describe().
#ifndef SOK_CORE_OPTIMIZER_SPEC_H_
#define SOK_CORE_OPTIMIZER_SPEC_H_

#include <cmath>
#include <string>
#include <vector>

#include "cc_ops/core/host_device.h"
#include "cc_ops/core/status.h"
#include "cc_ops/core/table_config.h"
#include "cc_ops/core/update.h"

namespace sok {

enum class OptimizerId : int {
#define SOK_OPTIMIZER_ID(O) k##O,
  SOK_FOR_EACH_OPTIMIZER(SOK_OPTIMIZER_ID)
#undef SOK_OPTIMIZER_ID
};

struct OptimizerSpec {
  OptimizerId id;
  std::string name;
  std::vector<std::string> hyper;  // the common ones first
  std::vector<StateSpec> states;
  CatchUp catch_up = CatchUp::kNone;

  // The planes it keeps in a table of this dimension. Names carry the optimizer's, so that two
  // optimizers on one table do not share a state by accident. `hyper` gives the initial values.
  std::vector<PlaneSpec> planes(std::int64_t dimension, const std::vector<float>& values) const {
    std::vector<PlaneSpec> result;
    for (const StateSpec& state : states) {
      float initial = 0;
      for (std::size_t i = 0; i < hyper.size() && i < values.size(); ++i) {
        if (hyper[i] == state.initial) initial = values[i];
      }
      result.push_back({name + "." + state.name, state.per_row ? 1 : dimension, initial});
    }
    return result;
  }
};

inline const std::vector<OptimizerSpec>& optimizer_specs() {
  static const std::vector<OptimizerSpec>* specs = [] {
    auto* all = new std::vector<OptimizerSpec>;
    auto add = [all](OptimizerId id, const char* name, const char* const* hyper, int hyper_count,
                     const StateSpec* states, int state_count, CatchUp catch_up) {
      OptimizerSpec spec{id, name, {}, {states, states + state_count}, catch_up};
      spec.hyper.assign(Common::kHyper, Common::kHyper + Common::kCount);
      spec.hyper.insert(spec.hyper.end(), hyper, hyper + hyper_count);
      all->push_back(std::move(spec));
    };
#define SOK_ADD_OPTIMIZER(O)                                                              \
  add(OptimizerId::k##O, O::kName, O::kHyper, O::kHyperCount, O::kStates, O::kStateCount, \
      O::kCatchUp);
    SOK_FOR_EACH_OPTIMIZER(SOK_ADD_OPTIMIZER)
#undef SOK_ADD_OPTIMIZER
    return all;
  }();
  return *specs;
}

inline Status find_optimizer(const std::string& name, const OptimizerSpec** found) {
  std::string known;
  for (const OptimizerSpec& spec : optimizer_specs()) {
    if (spec.name == name) {
      *found = &spec;
      return {};
    }
    known += (known.empty() ? "" : ", ") + spec.name;
  }
  return invalid_argument("unknown optimizer '", name, "': it must be one of ", known);
}

// Refuses planes that a table cannot add: of another width than the table's or, if an optimizer has
// a state of that name, than that one's; or whose rows would start at something else than a number.
template <typename Table>
Status check_planes(const Table& table, const std::vector<PlaneSpec>& wanted) {
  const TableConfig& config = table.config();
  for (const PlaneSpec& plane : wanted) {
    const int known = table.plane_index(plane.name);
    if (known >= 0) {
      SOK_RETURN_IF_ERROR(check_width(config.name, table.plane_spec(known), plane));
      continue;
    }
    if (!std::isfinite(plane.initial)) {
      return invalid_argument("table '", config.name, "': plane '", plane.name,
                              "' must start at a finite number, got ", plane.initial);
    }
    for (const OptimizerSpec& optimizer : optimizer_specs()) {
      for (const PlaneSpec& state : optimizer.planes(config.dimension, {})) {
        if (state.name == plane.name) {
          SOK_RETURN_IF_ERROR(check_width(config.name, state, plane));
        }
      }
    }
  }
  return {};
}

// A vector of hyper-parameters before it is put together: an entry without a scalar has its value.
// On a GPU the scalars' pointers are the device's.
constexpr int kMostHyperParameters = 16;
struct HyperParameters {
  std::int32_t count = 0;
  float values[kMostHyperParameters] = {};
  const float* scalars[kMostHyperParameters] = {};

  SOK_HD float operator[](int i) const { return scalars[i] != nullptr ? *scalars[i] : values[i]; }
};

inline Status check_hyper(const OptimizerSpec& optimizer, std::int64_t count) {
  if (count == static_cast<std::int64_t>(optimizer.hyper.size())) return {};
  return invalid_argument("update: optimizer '", optimizer.name, "' has ", optimizer.hyper.size(),
                          " hyper-parameters, got ", count);
}

// Calls f with the functor's type (as a null pointer to it).
template <typename F>
auto with_optimizer(OptimizerId id, F&& f) {
  switch (id) {
#define SOK_OPTIMIZER_CASE(O) \
  case OptimizerId::k##O:     \
    return f(static_cast<O*>(nullptr));
    SOK_FOR_EACH_OPTIMIZER(SOK_OPTIMIZER_CASE)
#undef SOK_OPTIMIZER_CASE
  }
  return f(static_cast<Sgd*>(nullptr));
}

}  // namespace sok

#endif  // SOK_CORE_OPTIMIZER_SPEC_H_
