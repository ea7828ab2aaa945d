// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The optimizers, one functor each; the formulas are Keras 3's. To add one:
//   1. write its struct here, and add a line to SOK_FOR_EACH_OPTIMIZER: ops, kernels, planes, dumps
//      and Python take its name, hyper-parameters and states from there;
//   2. name the Keras optimizer that it is in _RULES of sok/optimizers/rules.py; if Keras has none,
//      write one beside sok/optimizers/rowwise_adagrad.py;
//   3. write its formula, and a case with it, in tests/reference_optimizers.py: all tests run over
//      these.
//
// An optimizer has
//   kName      its name in the update op
//   kHyper     its hyper-parameters after the common ones (Common), in the order of the op's vector
//   kStates    its states: name, one value a row or one a column, initial value
//   X(hyper, step)                  what is computed once a table and step; step counts from 1
//   operator()(weight, g, s)        one column: the new weight; s holds the states, updated in
//                                   place
//   kCatchUp                        what it does in steps with a zero gradient (see CatchUp); if
//                                   that has a closed form:
//   missed(steps)                   what is computed once a row that missed so many steps
//   catch_up(missed, weight, s)     one column after these steps, weight decay aside
// and, if kRowWise, prepare_row(mean_square, s): called once a row before its columns, with the
// row's states, whose result operator() gets as s[0].
#ifndef SOK_CORE_UPDATE_H_
#define SOK_CORE_UPDATE_H_

#include <cstdint>

#include "cc_ops/core/host_device.h"

#if !defined(__CUDACC__)
#include <cmath>
#endif

namespace sok {

// Leading entries of every hyper-parameter vector. Decoupled weight decay is Keras's: the weight
// shrinks by weight * weight_decay * learning_rate before the update.
struct Common {
  static constexpr const char* kHyper[] = {"learning_rate", "weight_decay"};
  static constexpr int kCount = 2;

  float learning_rate;
  float keep;  // what weight decay leaves of a weight

  SOK_HD explicit Common(const float* hyper)
      : learning_rate(hyper[0]), keep(1.0f - hyper[0] * hyper[1]) {}
};

struct StateSpec {
  const char* name;
  bool per_row;
  // The hyper-parameter that is its initial value, or "" for 0.
  const char* initial;
};

// What a rule does to a row in a step whose gradient is zero, which a row outside of the batch has
// under update="lazy_global".
enum class CatchUp : int {
  kNone = 0,   // no closed form for several such steps
  kStays = 1,  // the weight stays, but for weight decay
  kMoves = 2,  // the weight moves by its momentum; with weight decay there is no closed form
};

constexpr const char* kCatchUpNames[] = {"none", "stays", "moves"};

// ratio^steps, and ratio + ratio^2 + ... + ratio^steps, for 0 <= ratio <= 1 and steps >= 1.
struct Geometric {
  float power, sum;

  SOK_HD Geometric(float ratio, float steps) : power(powf(ratio, steps)) {
    // Not 1 - power, which has few digits where the ratio is near 1.
    const float rest = -expm1f(steps * logf(ratio));
    sum = ratio == 1.0f ? steps : ratio * rest / (1.0f - ratio);
  }
};

#define SOK_NO_CATCH_UP static constexpr CatchUp kCatchUp = CatchUp::kNone
#define SOK_NO_HYPER                    \
  static constexpr int kHyperCount = 0; \
  static constexpr const char* kHyper[1] = {""}
#define SOK_HYPER(count, ...)               \
  static constexpr int kHyperCount = count; \
  static constexpr const char* kHyper[count] = {__VA_ARGS__}
#define SOK_NO_STATES                   \
  static constexpr int kStateCount = 0; \
  static constexpr StateSpec kStates[1] = {{"", false, ""}}
#define SOK_STATES(count, ...)              \
  static constexpr int kStateCount = count; \
  static constexpr StateSpec kStates[count] = {__VA_ARGS__}

// sqrt(x + epsilon), Keras's; or, for tf_keras's legacy optimizers, sqrt(x) + epsilon.
struct Root {
  float inside, outside;

  SOK_HD Root(float epsilon, float epsilon_outside)
      : inside(epsilon_outside != 0.0f ? 0.0f : epsilon),
        outside(epsilon_outside != 0.0f ? epsilon : 0.0f) {}
  SOK_HD float operator()(float x) const { return sqrt_rn(x + inside) + outside; }
};

struct Sgd {
  static constexpr const char* kName = "sgd";
  static constexpr bool kRowWise = false;
  SOK_NO_HYPER;
  SOK_NO_STATES;
  float rate;

  SOK_HD Sgd(const float* hyper, std::int64_t) : rate(hyper[0]) {}
  SOK_HD float operator()(float w, float g, float*) const { return w - rate * g; }

  static constexpr CatchUp kCatchUp = CatchUp::kStays;
  struct Missed {};
  SOK_HD Missed missed(float) const { return {}; }
  SOK_HD float catch_up(const Missed&, float w, float*) const { return w; }
};

struct Momentum {
  static constexpr const char* kName = "momentum";
  static constexpr bool kRowWise = false;
  SOK_HYPER(2, "momentum", "nesterov");
  SOK_STATES(1, {"momentum", false, ""});
  float rate, momentum;
  bool nesterov;

  SOK_HD Momentum(const float* hyper, std::int64_t)
      : rate(hyper[0]), momentum(hyper[2]), nesterov(hyper[3] != 0.0f) {}
  SOK_HD float operator()(float w, float g, float* s) const {
    s[0] = s[0] * momentum - g * rate;
    return nesterov ? w + (s[0] * momentum - g * rate) : w + s[0];
  }

  static constexpr CatchUp kCatchUp = CatchUp::kMoves;
  SOK_HD Geometric missed(float steps) const { return {momentum, steps}; }
  SOK_HD float catch_up(const Geometric& missed, float w, float* s) const {
    const float moved = missed.sum * s[0];
    s[0] *= missed.power;
    return w + (nesterov ? momentum * moved : moved);
  }
};

struct Adagrad {
  static constexpr const char* kName = "adagrad";
  static constexpr bool kRowWise = false;
  SOK_NO_CATCH_UP;
  SOK_HYPER(3, "epsilon", "initial_accumulator_value", "epsilon_outside");
  SOK_STATES(1, {"accumulator", false, "initial_accumulator_value"});
  float rate;
  Root root;

  SOK_HD Adagrad(const float* hyper, std::int64_t) : rate(hyper[0]), root(hyper[2], hyper[4]) {}
  SOK_HD float operator()(float w, float g, float* s) const {
    s[0] += g * g;
    return w - rate * g / root(s[0]);
  }
};

// One accumulator a row, which grows by the mean of the squared gradient.
struct RowWiseAdagrad {
  static constexpr const char* kName = "rowwise_adagrad";
  static constexpr bool kRowWise = true;
  SOK_NO_CATCH_UP;
  SOK_HYPER(2, "epsilon", "initial_accumulator_value");
  SOK_STATES(1, {"accumulator", true, "initial_accumulator_value"});
  float rate, epsilon;

  SOK_HD RowWiseAdagrad(const float* hyper, std::int64_t) : rate(hyper[0]), epsilon(hyper[2]) {}
  SOK_HD float prepare_row(float mean_square, float* s) const {
    s[0] += mean_square;
    return rate / sqrt_rn(s[0] + epsilon);
  }
  SOK_HD float operator()(float w, float g, float* s) const { return w - s[0] * g; }
};

// Centered keeps the mean gradient too; WithMomentum adds a velocity to the increment.
template <bool Centered, bool WithMomentum>
struct RmsPropBase {
  static constexpr bool kRowWise = false;
  SOK_HYPER(4, "rho", "epsilon", "momentum", "epsilon_outside");
  float rate, rho, momentum;
  Root root;

  SOK_HD RmsPropBase(const float* hyper, std::int64_t)
      : rate(hyper[0]), rho(hyper[2]), momentum(hyper[4]), root(hyper[3], hyper[5]) {}
  // s: velocity, then the mean gradient, then the momentum, as far as they exist.
  SOK_HD float operator()(float w, float g, float* s) const {
    s[0] = rho * s[0] + (1.0f - rho) * g * g;
    float variance = s[0];
    if (Centered) {
      s[1] = rho * s[1] + (1.0f - rho) * g;
      variance = s[0] - s[1] * s[1];
    }
    const float increment = rate * g / root(variance);
    if (!WithMomentum) return w - increment;
    float& velocity = s[Centered ? 2 : 1];
    velocity = momentum * velocity + increment;
    return w - velocity;
  }

  static constexpr CatchUp kCatchUp = WithMomentum ? CatchUp::kMoves : CatchUp::kStays;
  struct Missed {
    Geometric mean, velocity;
  };
  SOK_HD Missed missed(float steps) const { return {{rho, steps}, {momentum, steps}}; }
  SOK_HD float catch_up(const Missed& missed, float w, float* s) const {
    s[0] *= missed.mean.power;
    if (Centered) s[1] *= missed.mean.power;
    if (!WithMomentum) return w;
    float& velocity = s[Centered ? 2 : 1];
    const float moved = missed.velocity.sum * velocity;
    velocity *= missed.velocity.power;
    return w - moved;
  }
};
struct RmsProp : RmsPropBase<false, false> {
  static constexpr const char* kName = "rmsprop";
  SOK_STATES(1, {"velocity", false, ""});
  using RmsPropBase::RmsPropBase;
};
struct RmsPropMomentum : RmsPropBase<false, true> {
  static constexpr const char* kName = "rmsprop_momentum";
  SOK_STATES(2, {"velocity", false, ""}, {"momentum", false, ""});
  using RmsPropBase::RmsPropBase;
};
struct RmsPropCentered : RmsPropBase<true, false> {
  static constexpr const char* kName = "rmsprop_centered";
  SOK_STATES(2, {"velocity", false, ""}, {"average_gradient", false, ""});
  using RmsPropBase::RmsPropBase;
};
struct RmsPropCenteredMomentum : RmsPropBase<true, true> {
  static constexpr const char* kName = "rmsprop_centered_momentum";
  SOK_STATES(3, {"velocity", false, ""}, {"average_gradient", false, ""}, {"momentum", false, ""});
  using RmsPropBase::RmsPropBase;
};

// Adam's step size with bias correction by the global step, as Keras computes it.
template <bool Amsgrad>
struct AdamBase {
  static constexpr bool kRowWise = false;
  SOK_NO_CATCH_UP;
  SOK_HYPER(3, "beta_1", "beta_2", "epsilon");
  float alpha, beta_1, beta_2, epsilon;

  SOK_HD AdamBase(const float* hyper, std::int64_t step)
      : beta_1(hyper[2]), beta_2(hyper[3]), epsilon(hyper[4]) {
    const float t = static_cast<float>(step);
    alpha = hyper[0] * sqrt_rn(1.0f - powf(beta_2, t)) / (1.0f - powf(beta_1, t));
  }
  SOK_HD float operator()(float w, float g, float* s) const {
    s[0] += (g - s[0]) * (1.0f - beta_1);
    s[1] += (g * g - s[1]) * (1.0f - beta_2);
    float v = s[1];
    if (Amsgrad) {
      s[2] = s[2] > v ? s[2] : v;
      v = s[2];
    }
    return w - s[0] * alpha / (sqrt_rn(v) + epsilon);
  }
};
struct Adam : AdamBase<false> {
  static constexpr const char* kName = "adam";
  SOK_STATES(2, {"m", false, ""}, {"v", false, ""});
  using AdamBase::AdamBase;
};
struct AdamAmsgrad : AdamBase<true> {
  static constexpr const char* kName = "adam_amsgrad";
  SOK_STATES(3, {"m", false, ""}, {"v", false, ""}, {"v_hat", false, ""});
  using AdamBase::AdamBase;
};

struct Adamax {
  static constexpr const char* kName = "adamax";
  static constexpr bool kRowWise = false;
  SOK_NO_CATCH_UP;
  SOK_HYPER(3, "beta_1", "beta_2", "epsilon");
  SOK_STATES(2, {"m", false, ""}, {"u", false, ""});
  float rate, beta_1, beta_2, epsilon;

  SOK_HD Adamax(const float* hyper, std::int64_t step)
      : beta_1(hyper[2]), beta_2(hyper[3]), epsilon(hyper[4]) {
    rate = hyper[0] / (1.0f - powf(beta_1, static_cast<float>(step)));
  }
  SOK_HD float operator()(float w, float g, float* s) const {
    const float magnitude = g < 0.0f ? -g : g;
    s[0] += (g - s[0]) * (1.0f - beta_1);
    // Written so that a NaN gradient is passed on, as a dense maximum does.
    const float decayed = beta_2 * s[1];
    s[1] = magnitude <= decayed ? decayed : magnitude;
    return w - rate * s[0] / (s[1] + epsilon);
  }
};

struct Adadelta {
  static constexpr const char* kName = "adadelta";
  static constexpr bool kRowWise = false;
  SOK_NO_CATCH_UP;
  SOK_HYPER(2, "rho", "epsilon");
  SOK_STATES(2, {"accumulated_grad", false, ""}, {"accumulated_delta", false, ""});
  float rate, rho, epsilon;

  SOK_HD Adadelta(const float* hyper, std::int64_t)
      : rate(hyper[0]), rho(hyper[2]), epsilon(hyper[3]) {}
  SOK_HD float operator()(float w, float g, float* s) const {
    s[0] = rho * s[0] + (1.0f - rho) * g * g;
    const float delta = -(sqrt_rn(s[1] + epsilon) * g / sqrt_rn(s[0] + epsilon));
    s[1] = rho * s[1] + (1.0f - rho) * delta * delta;
    return w + rate * delta;
  }
};

struct Ftrl {
  static constexpr const char* kName = "ftrl";
  static constexpr bool kRowWise = false;
  SOK_NO_CATCH_UP;
  SOK_HYPER(6, "learning_rate_power", "initial_accumulator_value", "l1_regularization_strength",
            "l2_regularization_strength", "l2_shrinkage_regularization_strength", "beta");
  SOK_STATES(2, {"accumulator", false, "initial_accumulator_value"}, {"linear", false, ""});
  float rate, power, l1, l2, shrinkage;

  SOK_HD Ftrl(const float* hyper, std::int64_t)
      : rate(hyper[0]),
        power(-hyper[2]),
        l1(hyper[4]),
        l2(hyper[5] + hyper[7] / (2.0f * hyper[0])),
        shrinkage(hyper[6]) {}
  SOK_HD float operator()(float w, float g, float* s) const {
    const float accumulator = s[0] + g * g;
    const float root = raise(accumulator);
    s[1] += g + 2.0f * shrinkage * w - (root - raise(s[0])) / rate * w;
    s[0] = accumulator;
    const float clipped = s[1] > l1 ? l1 : (s[1] < -l1 ? -l1 : s[1]);
    return (clipped - s[1]) / (root / rate + 2.0f * l2);
  }

 private:
  SOK_HD float raise(float x) const { return power == 0.5f ? sqrt_rn(x) : powf(x, power); }
};

#define SOK_FOR_EACH_OPTIMIZER(X) \
  X(Sgd)                          \
  X(Momentum)                     \
  X(Adagrad)                      \
  X(RowWiseAdagrad)               \
  X(RmsProp)                      \
  X(RmsPropMomentum)              \
  X(RmsPropCentered)              \
  X(RmsPropCenteredMomentum)      \
  X(Adam)                         \
  X(AdamAmsgrad)                  \
  X(Adamax)                       \
  X(Adadelta)                     \
  X(Ftrl)

// How far an update reaches: the rows of the batch; or every row (absent ones get a zero gradient,
// as in a dense optimizer), at once or when it is next read.
enum class Reach : int { kLocal = 0, kGlobal = 1, kLazyGlobal = 2 };
constexpr const char* kReachNames[] = {"local", "global", "lazy_global"};

// Applies one column: weight decay, then the optimizer. The order is Keras's.
template <typename Optimizer>
SOK_HD float update_column(const Common& common, const Optimizer& optimizer, float weight, float g,
                           float* states) {
  return optimizer(weight * common.keep, g, states);
}

}  // namespace sok

#endif  // SOK_CORE_UPDATE_H_
