// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/vector_ops.h"

#include <cmath>

#include "tests/native/testing.h"

namespace sok::cpu {
namespace {

// Below, at and above every block that the loops are cut into.
constexpr std::int64_t kWidths[] = {1,  2,  3,  5,  7,  15, 16,  17,  31,  32,  33,
                                    47, 63, 64, 65, 79, 96, 127, 128, 129, 191, 1023};

template <typename T>
std::vector<T> numbers(Seeded& random, std::int64_t count) {
  std::vector<T> result(count);
  for (T& x : result) {
    x = from_float<T>(static_cast<float>(random.below(4001)) / 1000.0f - 2.0f);
  }
  return result;
}

template <typename T>
class SumRowsTest : public ::testing::Test {};
using RowTypes = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(SumRowsTest, RowTypes);

// One float addition after the other, in the order of the rows: equal bit for bit.
TYPED_TEST(SumRowsTest, SumsInOrderAtEveryWidth) {
  for (const std::int64_t width : kWidths) {
    Seeded random(static_cast<std::uint64_t>(width));
    for (const std::int64_t count : {0, 1, 2, 9}) {
      const auto data = numbers<TypeParam>(random, count * width);
      const auto weights = numbers<float>(random, count);
      std::vector<const TypeParam*> rows;
      for (std::int64_t i = 0; i < count; ++i) rows.push_back(data.data() + i * width);
      for (const bool weighted : {false, true}) {
        for (const bool start : {false, true}) {
          std::vector<float> out(width + 1, 0.25f), expected(width + 1, 0.25f);
          for (std::int64_t c = 0; c < width; ++c) {
            float total = start ? 0.0f : expected[c];
            for (std::int64_t i = 0; i < count; ++i) {
              const float x = to_float(rows[i][c]);
              total += weighted ? weights[i] * x : x;
            }
            expected[c] = total;
          }
          sum_rows(rows.data(), weighted ? weights.data() : nullptr, count, width, start,
                   out.data());
          ASSERT_EQ(out, expected) << "width " << width << ", rows " << count;
        }
      }
    }
  }
}

TYPED_TEST(SumRowsTest, SumsInFloat) {
  const std::vector<TypeParam> one(3, from_float<TypeParam>(1.0f));
  const std::vector<const TypeParam*> rows(4096, one.data());
  std::vector<float> out(3);
  sum_rows(rows.data(), nullptr, 4096, 3, true, out.data());
  EXPECT_EQ(out, std::vector<float>(3, 4096.0f));
}

TEST(VectorOpsTest, ElementwiseAtEveryWidth) {
  for (const std::int64_t width : kWidths) {
    Seeded random(static_cast<std::uint64_t>(width));
    const auto a = numbers<float>(random, width);
    auto sum = numbers<float>(random, width + 1), set = sum, scaled = sum;
    const auto before = sum;
    add_scaled(a.data(), 0.3f, width, sum.data());
    set_scaled(a.data(), 0.3f, width, set.data());
    scale_row(0.3f, width, scaled.data());
    double exact = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      ASSERT_EQ(sum[c], before[c] + 0.3f * a[c]);
      ASSERT_EQ(set[c], 0.3f * a[c]);
      ASSERT_EQ(scaled[c], 0.3f * before[c]);
      exact += static_cast<double>(a[c]) * before[c];
    }
    for (const auto* written : {&sum, &set, &scaled}) ASSERT_EQ((*written)[width], before[width]);
    ASSERT_NEAR(dot(a.data(), before.data(), width), exact,
                1e-6 * (4.0 * static_cast<double>(width)));
  }
}

TEST(VectorOpsTest, ConversionsAtEveryWidth) {
  for (const std::int64_t width : kWidths) {
    Seeded random(static_cast<std::uint64_t>(width));
    const auto in = numbers<float>(random, width);
    const auto round_trip = [&](auto type) {
      using T = decltype(type);
      std::vector<T> narrow(width);
      std::vector<float> wide(width);
      convert(in.data(), width, narrow.data());
      convert(narrow.data(), width, wide.data());
      for (std::int64_t c = 0; c < width; ++c) {
        ASSERT_EQ(wide[c], to_float(from_float<T>(in[c])));
      }
    };
    round_trip(Half{});
    round_trip(BFloat16{});
    round_trip(float{});
  }
}

}  // namespace
}  // namespace sok::cpu
