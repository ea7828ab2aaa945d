// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Initial values of rows: a pure function of (seed, key, column). They do not depend on the order
// in which keys arrive, on the batch, on the device or on the number of ranks; all arithmetic is
// single rounding (host_device.h), so CPU and GPU agree bit for bit.
#ifndef SOK_CORE_INITIALIZE_H_
#define SOK_CORE_INITIALIZE_H_

#include <cstdint>

#include "cc_ops/core/host_device.h"
#include "cc_ops/core/philox.h"
#include "cc_ops/core/types.h"

namespace sok {

enum class InitKind : int { kConstant = 0, kUniform = 1, kNormal = 2, kTruncatedNormal = 3 };

// Natural logarithm for normal positive floats, within 1 ulp: mantissa in [sqrt(1/2), sqrt(2)) and
// the polynomial of S. Moshier's Cephes library.
SOK_HD float log_rn(float x) {
  std::uint32_t bits = float_bits(x);
  // Biasing by the bits of sqrt(1/2) makes the exponent field the one of the reduced mantissa.
  const std::uint32_t shifted = bits - 0x3f3504f3u;
  const int exponent = static_cast<int>(shifted) >> 23;
  const float m = add_rn(bits_float(bits - (static_cast<std::uint32_t>(exponent) << 23)), -1.0f);
  const float z = mul_rn(m, m);
  float p = 7.0376836292e-2f;
  p = add_rn(mul_rn(p, m), -1.1514610310e-1f);
  p = add_rn(mul_rn(p, m), 1.1676998740e-1f);
  p = add_rn(mul_rn(p, m), -1.2420140846e-1f);
  p = add_rn(mul_rn(p, m), 1.4249322787e-1f);
  p = add_rn(mul_rn(p, m), -1.6668057665e-1f);
  p = add_rn(mul_rn(p, m), 2.0000714765e-1f);
  p = add_rn(mul_rn(p, m), -2.4999993993e-1f);
  p = add_rn(mul_rn(p, m), 3.3333331174e-1f);
  const float e = static_cast<float>(exponent);
  float y = mul_rn(mul_rn(m, z), p);
  y = add_rn(y, mul_rn(e, -2.12194440e-4f));
  y = add_rn(y, mul_rn(z, -0.5f));
  return add_rn(add_rn(m, y), mul_rn(e, 0.693359375f));
}

// The standard normal quantile of (1 + x) / 2 for x in (-1, 1): sqrt(2) times the inverse error
// function, M. Giles, "Approximating the erfinv function", GPU Computing Gems, 2011.
SOK_HD float normal_quantile(float x) {
  // Two polynomials, of which one counts. Chosen coefficient by coefficient, so that loops over
  // columns have no branch and compilers vectorise them.
  float w = -log_rn(mul_rn(add_rn(1.0f, -x), add_rn(1.0f, x)));
  const bool central = w < 5.0f;
  w = central ? add_rn(w, -2.5f) : add_rn(sqrt_rn(w), -3.0f);
  float p = central ? 2.81022636e-08f : -0.000200214257f;
  p = add_rn(central ? 3.43273939e-07f : 0.000100950558f, mul_rn(p, w));
  p = add_rn(central ? -3.5233877e-06f : 0.00134934322f, mul_rn(p, w));
  p = add_rn(central ? -4.39150654e-06f : -0.00367342844f, mul_rn(p, w));
  p = add_rn(central ? 0.00021858087f : 0.00573950773f, mul_rn(p, w));
  p = add_rn(central ? -0.00125372503f : -0.0076224613f, mul_rn(p, w));
  p = add_rn(central ? -0.00417768164f : 0.00943887047f, mul_rn(p, w));
  p = add_rn(central ? 0.246640727f : 1.00167406f, mul_rn(p, w));
  p = add_rn(central ? 1.50140941f : 2.83297682f, mul_rn(p, w));
  return mul_rn(1.41421356237f, mul_rn(p, x));
}

// What fills a new row. kConstant: a. kUniform: [a, b). kNormal: mean a, deviation b.
// kTruncatedNormal: the same, redrawn inside two deviations.
struct Initializer {
  InitKind kind = InitKind::kConstant;
  float a = 0;
  float b = 0;
  std::uint64_t seed = 0;

  // The random words of the block's four columns.
  SOK_HD Philox4 words(Key key, std::uint32_t block) const {
    const std::uint64_t k = static_cast<std::uint64_t>(key);
    return philox(seed, static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(k >> 32), block,
                  0u);
  }

  // Four consecutive columns, 4 * block .. 4 * block + 3, of the row of `key`.
  SOK_HD void block(Key key, std::uint32_t block, float out[4]) const {
    if (kind == InitKind::kConstant) {
      for (int i = 0; i < 4; ++i) out[i] = a;
      return;
    }
    const Philox4 random = words(key, block);
    for (int i = 0; i < 4; ++i) out[i] = shape(random.x[i]);
  }

  // One column: what a reader that does not walk a row in blocks of four uses.
  SOK_HD float value(Key key, std::uint32_t column) const {
    float four[4];
    block(key, column >> 2, four);
    return four[column & 3u];
  }

  // A column's value from its random word.
  SOK_HD float shape(std::uint32_t random) const {
    // 23 bits and a half step: exact in float, and never 0 or 1.
    const auto bits = static_cast<std::int32_t>(random >> 9);
    const float u = mul_rn(add_rn(static_cast<float>(bits), 0.5f), 1.1920928955078125e-7f);
    if (kind == InitKind::kUniform) return add_rn(a, mul_rn(add_rn(b, -a), u));
    float x = add_rn(mul_rn(2.0f, u), -1.0f);
    if (kind == InitKind::kTruncatedNormal) x = mul_rn(x, 0.95449973610364f);  // P(|z| < 2)
    return add_rn(a, mul_rn(b, normal_quantile(x)));
  }
};

// Fills row[0 .. width) of a plane of type T.
template <typename T>
SOK_HD void initialize_row(const Initializer& initializer, Key key, std::int64_t width, T* row) {
  for (std::int64_t column = 0; column < width; column += 4) {
    float four[4];
    initializer.block(key, static_cast<std::uint32_t>(column >> 2), four);
    const int count = width - column < 4 ? static_cast<int>(width - column) : 4;
    for (int i = 0; i < count; ++i) row[column + i] = from_float<T>(four[i]);
  }
}

}  // namespace sok

#endif  // SOK_CORE_INITIALIZE_H_
