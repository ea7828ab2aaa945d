// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/core/initialize.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "cc_ops/cpu/initialize_rows.h"
#include "tests/native/testing.h"

namespace sok {
namespace {

// The known answers that Random123 publishes for philox4x32-10 (tests/kat_vectors).
TEST(PhiloxTest, KnownAnswers) {
  struct Case {
    std::uint32_t counter[4], key[2], expected[4];
  };
  const Case cases[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Case& c : cases) {
    const std::uint64_t key = (std::uint64_t{c.key[1]} << 32) | c.key[0];
    const Philox4 got = philox(key, c.counter[0], c.counter[1], c.counter[2], c.counter[3]);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got.x[i], c.expected[i]) << i;
  }
}

// Distance in units of the last place of the float nearest to the exact value.
double ulps(float got, double exact) {
  const float near = std::abs(static_cast<float>(exact));
  const double unit = std::nextafter(near, HUGE_VALF) - near;
  return std::abs(got - exact) / unit;
}

TEST(ArithmeticTest, LogarithmIsWithinOneUlp) {
  double worst = 0;
  for (std::uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += 4099) {
    const float x = bits_float(bits);
    worst = std::max(worst, ulps(log_rn(x), std::log(static_cast<double>(x))));
  }
  for (int i = -2000; i <= 2000; ++i) {  // around 1, where the result is small
    const float x = bits_float(static_cast<std::uint32_t>(0x3f800000 + i));
    worst = std::max(worst, i == 0 ? std::abs(log_rn(x)) : ulps(log_rn(x), std::log(double{x})));
  }
  EXPECT_LT(worst, 1.0);
}

// The quantile inverts the distribution: P(|Z| < q(x)) = x.
TEST(ArithmeticTest, NormalQuantileInvertsTheDistribution) {
  for (int i = -(1 << 15) + 1; i < (1 << 15); ++i) {
    const float x = static_cast<float>(i) / (1 << 15);
    const double q = normal_quantile(x);
    ASSERT_EQ(std::signbit(q), std::signbit(x)) << x;
    ASSERT_NEAR(std::erf(q / std::sqrt(2.0)), x, 4e-7) << x;
  }
  // In the tail by the complement, which is where a wrong branch would show.
  for (int i = 1; i < 4096; ++i) {
    const float x = 1.0f - static_cast<float>(i) * 1.1920928955078125e-7f;
    const double tail = std::erfc(normal_quantile(x) / std::sqrt(2.0));
    ASSERT_NEAR(tail / (1.0 - double{x}), 1.0, 1e-5) << x;
  }
}

Initializer make(InitKind kind, float a, float b, std::uint64_t seed = 3) {
  Initializer initializer;
  initializer.kind = kind;
  initializer.a = a;
  initializer.b = b;
  initializer.seed = seed;
  return initializer;
}

constexpr InitKind kRandomKinds[] = {InitKind::kUniform, InitKind::kNormal,
                                     InitKind::kTruncatedNormal};

TEST(InitializerTest, ValuesArePureFunctionsOfKeyAndColumn) {
  for (const InitKind kind : kRandomKinds) {
    const Initializer initializer = make(kind, 0.0f, 1.0f);
    for (const std::int64_t width : {1, 3, 4, 5, 17}) {
      std::vector<float> row(width);
      for (const Key key : cpu::sentinel_keys()) {
        initialize_row(initializer, key, width, row.data());
        for (std::int64_t c = 0; c < width; ++c) {
          EXPECT_EQ(row[c], initializer.value(key, static_cast<std::uint32_t>(c)));
        }
      }
    }
  }
}

// The loops that fill rows in vectors.
TEST(InitializerTest, FilledRowsAreTheColumnsValues) {
  for (const InitKind kind :
       {InitKind::kConstant, InitKind::kUniform, InitKind::kNormal, InitKind::kTruncatedNormal}) {
    const Initializer initializer = make(kind, 0.25f, 3.0f);
    for (const std::int64_t width : {1, 4, 5, 15, 16, 17, 63, 64, 65, 80, 81, 200}) {
      const std::vector<Key>& keys = cpu::sentinel_keys();
      const std::size_t count = keys.size();
      // One column more, which nobody may write to.
      std::vector<std::vector<float>> row(count, std::vector<float>(width + 1, 99.0f));
      std::vector<std::vector<Half>> half(count, std::vector<Half>(width));
      std::vector<std::vector<BFloat16>> brain(count, std::vector<BFloat16>(width));
      std::vector<float*> rows;
      std::vector<Half*> halves;
      std::vector<BFloat16*> brains;
      for (std::size_t k = 0; k < count; ++k) {
        rows.push_back(row[k].data());
        halves.push_back(half[k].data());
        brains.push_back(brain[k].data());
      }
      const auto all = static_cast<std::int64_t>(count);
      cpu::initialize_rows(initializer, keys.data(), all, width, rows.data());
      cpu::initialize_rows(initializer, keys.data(), all, width, halves.data());
      cpu::initialize_rows(initializer, keys.data(), all, width, brains.data());
      for (std::size_t k = 0; k < count; ++k) {
        for (std::int64_t c = 0; c < width; ++c) {
          const float value = initializer.value(keys[k], static_cast<std::uint32_t>(c));
          ASSERT_EQ(row[k][c], value) << width << " " << c;
          ASSERT_EQ(half[k][c].bits, from_float<Half>(value).bits);
          ASSERT_EQ(brain[k][c].bits, from_float<BFloat16>(value).bits);
        }
        ASSERT_EQ(row[k][width], 99.0f);
      }
    }
  }
}

TEST(InitializerTest, RowsDoNotDependOnTheOrderOfInsertion) {
  std::vector<Key> keys(3000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i * i) - 5;
  TableConfig config = cpu::config_of(6);
  config.initializer = make(InitKind::kNormal, 1.0f, 2.0f);
  const auto forward = cpu::make_table(config);
  const auto backward = cpu::make_table(config);
  cpu::insert(*forward, keys);
  std::reverse(keys.begin(), keys.end());
  for (Key key : keys) cpu::insert(*backward, {key});
  for (const auto& [key, row] : cpu::contents(*forward)) {
    const float* a = forward->plane<float>(0).row(row);
    const float* b = backward->plane<float>(0).row(cpu::find(*backward, {key})[0]);
    ASSERT_TRUE(std::equal(a, a + 6, b)) << key;
  }
}

TEST(InitializerTest, KeysAndSeedsAndColumnsDiffer) {
  for (const InitKind kind : kRandomKinds) {
    std::set<std::vector<float>> rows;
    for (Key key = -500; key < 500; ++key) {
      for (const std::uint64_t seed : {1, 2}) {
        std::vector<float> row(8);
        initialize_row(make(kind, 0.0f, 1.0f, seed), key, 8, row.data());
        EXPECT_NE(std::vector<float>(row.begin(), row.begin() + 4),
                  std::vector<float>(row.begin() + 4, row.end()));
        rows.insert(row);
      }
    }
    EXPECT_EQ(rows.size(), 2000u);
  }
}

TEST(InitializerTest, MomentsAreThoseAskedFor) {
  const double truncated_deviation = 0.8796256610342398;  // of N(0, 1) within two deviations
  for (const InitKind kind : kRandomKinds) {
    const Initializer initializer = make(kind, 1.0f, 3.0f);
    const bool uniform = kind == InitKind::kUniform;
    const double mean = uniform ? 2.0 : 1.0;
    const double deviation = uniform                     ? 2.0 / std::sqrt(12.0)
                             : kind == InitKind::kNormal ? 3.0
                                                         : 3.0 * truncated_deviation;
    const int count = 400000;
    double sum = 0, squares = 0;
    for (int i = 0; i < count; ++i) {
      const double x = initializer.value(i / 8, static_cast<std::uint32_t>(i % 8));
      sum += x;
      squares += (x - mean) * (x - mean);
      if (uniform) {
        ASSERT_GE(x, 1.0);
        ASSERT_LT(x, 3.0);
      } else if (kind == InitKind::kTruncatedNormal) {
        ASSERT_LE(std::abs(x - 1.0), 6.0001);
      }
    }
    // Five standard errors.
    EXPECT_NEAR(sum / count, mean, 5 * deviation / std::sqrt(count));
    EXPECT_NEAR(std::sqrt(squares / count), deviation, 5 * deviation / std::sqrt(count));
  }
}

TEST(InitializerTest, ConstantsAreExact) {
  float row[5];
  initialize_row(make(InitKind::kConstant, 13.0f, 0.0f), -1, 5, row);
  for (float x : row) EXPECT_EQ(x, 13.0f);
}

}  // namespace
}  // namespace sok
