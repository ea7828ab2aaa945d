// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Random vectors of one dot interaction, with the gradient of the result.
#ifndef SOK_TESTS_NATIVE_INTERACTION_CASE_H_
#define SOK_TESTS_NATIVE_INTERACTION_CASE_H_

#include <cstdint>
#include <vector>

#include "cc_ops/core/interaction.h"
#include "tests/native/testing.h"

namespace sok::cpu {

template <typename T>
struct InteractionCase {
  Interaction call;
  std::vector<std::vector<T>> vectors;
  std::vector<T> gradient;

  // `eighths`: products and their sums are exact in float; otherwise numbers of 24 bits.
  InteractionCase(Seeded& random, int count, std::int64_t batch, std::int64_t width, int beside,
                  bool eighths = true) {
    call.type = RowTypeOf<T>::kValue;
    call.batch = batch;
    call.width = width;
    call.beside = beside;
    const auto draw = [&](std::int64_t size) {
      std::vector<T> values(size);
      for (T& value : values) {
        value = from_float<T>(eighths ? static_cast<float>(random.below(33)) / 8.0f - 2.0f
                                      : static_cast<float>(random.below(1 << 25)) / 0x1p24f - 1.0f);
      }
      return values;
    };
    for (int i = 0; i < count; ++i) vectors.push_back(draw(batch * width));
    for (const std::vector<T>& vector : vectors) call.vectors.push_back(vector.data());
    gradient = draw(batch * call.columns());
  }
};

}  // namespace sok::cpu

#endif  // SOK_TESTS_NATIVE_INTERACTION_CASE_H_
