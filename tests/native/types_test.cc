// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// 16-bit floats, against arithmetic in double.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/native/testing.h"

namespace sok {
namespace {

// A binary format with an implicit leading bit, subnormal numbers, infinities and NaNs.
struct Format {
  int exponent_bits, mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int most_exponent() const { return (1 << exponent_bits) - 1; }

  double value(std::uint16_t bits) const {
    const int exponent = (bits >> mantissa_bits) & most_exponent();
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == most_exponent()) {
      return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                           : sign * std::numeric_limits<double>::infinity();
    }
    const double significand = mantissa + (exponent == 0 ? 0 : 1 << mantissa_bits);
    return sign * std::ldexp(significand, std::max(exponent, 1) - bias() - mantissa_bits);
  }

  // Non-negative finite values in order: the index is the bit pattern.
  std::vector<double> magnitudes() const {
    std::vector<double> all;
    for (int bits = 0; bits < most_exponent() << mantissa_bits; ++bits) {
      all.push_back(value(static_cast<std::uint16_t>(bits)));
    }
    return all;
  }
};
constexpr Format kHalf{5, 10};
constexpr Format kBrain{8, 7};

template <typename T>
struct FormatOf;
template <>
struct FormatOf<Half> {
  static constexpr Format kValue = kHalf;
};
template <>
struct FormatOf<BFloat16> {
  static constexpr Format kValue = kBrain;
};

template <typename T>
class SixteenBitTest : public ::testing::Test {};
using SixteenBitTypes = ::testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(SixteenBitTest, SixteenBitTypes);

TYPED_TEST(SixteenBitTest, EveryValueConvertsBothWays) {
  constexpr Format format = FormatOf<TypeParam>::kValue;
  for (int i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float x = to_float(TypeParam{bits});
    const double expected = format.value(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(x)) << i;
      ASSERT_TRUE(std::isnan(to_float(from_float<TypeParam>(x)))) << i;
      continue;
    }
    ASSERT_EQ(static_cast<double>(x), expected) << i;
    ASSERT_EQ(std::signbit(x), std::signbit(expected)) << i;
    ASSERT_EQ(from_float<TypeParam>(x).bits, bits) << x;
  }
}

// Between each two neighbours: the midpoint goes to the even one, everything else to the nearer
// one.
TYPED_TEST(SixteenBitTest, RoundsToNearestTiesToEven) {
  const std::vector<double> values = FormatOf<TypeParam>::kValue.magnitudes();
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const auto middle = static_cast<float>((values[i] + values[i + 1]) / 2);
    ASSERT_EQ(static_cast<double>(middle), (values[i] + values[i + 1]) / 2);
    const float below = std::nextafter(middle, 0.0f);
    const float above = std::nextafter(middle, std::numeric_limits<float>::infinity());
    const auto lower = static_cast<std::uint16_t>(i), upper = static_cast<std::uint16_t>(i + 1);
    const std::uint16_t even = i % 2 == 0 ? lower : upper;
    for (const std::uint16_t sign : {0, 0x8000}) {
      const float s = sign == 0 ? 1.0f : -1.0f;
      ASSERT_EQ(from_float<TypeParam>(s * middle).bits, even | sign) << s * middle;
      ASSERT_EQ(from_float<TypeParam>(s * below).bits, lower | sign) << s * below;
      ASSERT_EQ(from_float<TypeParam>(s * above).bits, upper | sign) << s * above;
    }
  }
}

TYPED_TEST(SixteenBitTest, OverflowIsInfinity) {
  const double most = FormatOf<TypeParam>::kValue.magnitudes().back();
  const double step = most - *(FormatOf<TypeParam>::kValue.magnitudes().rbegin() + 1);
  const auto tie = static_cast<float>(most + step / 2);
  EXPECT_TRUE(std::isinf(to_float(from_float<TypeParam>(tie))));
  EXPECT_EQ(to_float(from_float<TypeParam>(std::nextafter(tie, 0.0f))), static_cast<float>(most));
  EXPECT_TRUE(std::isinf(to_float(from_float<TypeParam>(std::numeric_limits<float>::max()))));
  EXPECT_LT(to_float(from_float<TypeParam>(-std::numeric_limits<float>::infinity())), 0.0f);
}

TYPED_TEST(SixteenBitTest, SmallestFloatsBecomeZeroAndKeepTheirSign) {
  for (const float tiny : {0.0f, std::numeric_limits<float>::denorm_min()}) {
    EXPECT_EQ(from_float<TypeParam>(tiny).bits, 0);
    EXPECT_EQ(from_float<TypeParam>(-tiny).bits, 0x8000);
  }
}

}  // namespace
}  // namespace sok
