// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The dot interaction against its definition.
#include "cc_ops/cpu/stages.h"
#include "tests/native/interaction_case.h"

namespace sok::cpu {
namespace {

TEST(InteractionTest, EveryPairHasItsPlace) {
  for (const int count : {2, 3, 7, 27, 128}) {
    int place = 0;
    for (int i = 0; i < count; ++i) {
      for (int j = i + 1; j < count; ++j) {
        ASSERT_EQ(pair_place(i, j, count), place);
        ASSERT_EQ(pair_place(j, i, count), place);
        ++place;
      }
    }
    ASSERT_EQ(pair_count(count), place);
  }
}

template <typename T>
void expect_products(Seeded& random, int count, std::int64_t batch, std::int64_t width,
                     int beside) {
  ThreadExecutor executor(3);
  const InteractionCase<T> drawn(random, count, batch, width, beside);
  const auto value = [&](int i, std::int64_t b, std::int64_t c) {
    return double{to_float(drawn.vectors[i][b * width + c])};
  };
  const std::int64_t columns = drawn.call.columns();
  std::vector<T> products(batch * columns);
  dot_interaction(executor, drawn.call, products.data());
  std::vector<std::vector<T>> gradients(count, std::vector<T>(batch * width));
  std::vector<void*> pointers;
  for (std::vector<T>& gradient : gradients) pointers.push_back(gradient.data());
  dot_interaction_gradients(executor, drawn.call, drawn.gradient.data(), pointers);

  for (std::int64_t b = 0; b < batch; ++b) {
    const T* row = products.data() + b * columns;
    const T* upstream = drawn.gradient.data() + b * columns;
    for (int i = 0; i < count; ++i) {
      for (std::int64_t c = 0; c < width; ++c) {
        double expected = 0;
        if (i < beside) {
          ASSERT_EQ(to_float(row[i * width + c]), value(i, b, c));
          expected = to_float(upstream[i * width + c]);
        }
        for (int j = 0; j < count; ++j) {
          if (j == i) continue;
          expected += to_float(upstream[beside * width + pair_place(i, j, count)]) * value(j, b, c);
        }
        ASSERT_EQ(to_float(gradients[i][b * width + c]),
                  to_float(from_float<T>(static_cast<float>(expected))));
      }
      for (int j = i + 1; j < count; ++j) {
        double expected = 0;
        for (std::int64_t c = 0; c < width; ++c) expected += value(i, b, c) * value(j, b, c);
        ASSERT_EQ(to_float(row[beside * width + pair_place(i, j, count)]),
                  to_float(from_float<T>(static_cast<float>(expected))));
      }
    }
  }
}

TEST(InteractionTest, ProductsAndGradientsAreThoseOfTheDefinition) {
  Seeded random(600);
  for (const int count : {2, 5, 27}) {
    for (const std::int64_t width : {1, 7, 16, 33}) {
      for (const int beside : {0, 1, count}) {
        expect_products<float>(random, count, 5, width, beside);
        expect_products<Half>(random, count, 3, width, beside);
        expect_products<BFloat16>(random, count, 2, width, beside);
      }
    }
  }
}

}  // namespace
}  // namespace sok::cpu
