// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The dot interaction on a GPU against the CPU's: where every sum is exact, the bits agree.
#include "tests/native/gpu/device_testing.h"
#include "tests/native/interaction_case.h"

namespace sok::cuda {
namespace {

using cpu::InteractionCase;
using cpu::Seeded;

template <typename T>
std::vector<float> floats(const std::vector<T>& values) {
  std::vector<float> result;
  for (const T value : values) result.push_back(to_float(value));
  return result;
}

template <typename T>
void expect_equal_products(Seeded& random, int count, std::int64_t batch, std::int64_t width,
                           int beside, std::int64_t shift = 0) {
  TestContext context;
  cpu::ThreadExecutor executor(2);
  const InteractionCase<T> drawn(random, count, batch, width, beside);
  std::vector<T> products(batch * drawn.call.columns());
  cpu::dot_interaction(executor, drawn.call, products.data());
  std::vector<std::vector<T>> gradients(count, std::vector<T>(batch * width));
  std::vector<void*> pointers;
  for (std::vector<T>& gradient : gradients) pointers.push_back(gradient.data());
  cpu::dot_interaction_gradients(executor, drawn.call, drawn.gradient.data(), pointers);

  Interaction call = drawn.call;
  std::vector<Buffer> uploads, outputs;
  std::vector<void*> device_pointers;
  for (int i = 0; i < count; ++i) {
    std::vector<T> shifted(shift, T{});
    shifted.insert(shifted.end(), drawn.vectors[i].begin(), drawn.vectors[i].end());
    uploads.push_back(context.upload(shifted));
    call.vectors[i] = uploads.back().template as<T>() + shift;
    outputs.push_back(context.allocate(batch * width * sizeof(T)));
    device_pointers.push_back(outputs.back().data);
  }
  const Buffer gradient = context.upload(drawn.gradient);
  const Buffer out = context.allocate(products.size() * sizeof(T));
  const std::int64_t before = kernels_launched();
  expect_ok(dot_interaction(context, call, out.data));
  expect_ok(dot_interaction_gradients(context, call, gradient.data, device_pointers));
  EXPECT_EQ(kernels_launched() - before, 2);
  const auto what = [&] {
    return ::testing::Message() << count << " vectors [" << batch << ", " << width << "], "
                                << beside << " beside, type " << static_cast<int>(call.type);
  };
  ASSERT_EQ(floats(context.download<T>(out, products.size())), floats(products)) << what();
  for (int i = 0; i < count; ++i) {
    ASSERT_EQ(floats(context.download<T>(outputs[i], gradients[i].size())), floats(gradients[i]))
        << what() << ", gradient of " << i;
  }
}

TEST(DeviceInteractionTest, GivesTheBitsOfTheCpu) {
  Seeded random(run_seed() + 700);
  std::vector<int> counts = {2, 3, 8, 9, 16, 17, 27, 28, 29, 31, 32, 33, 64, 128};
  std::vector<std::int64_t> widths = {1, 4, 6, 8, 16, 72, 100, 128, 132, 136, 200, 260};
  if (under_sanitizer()) counts = {3, 27, 33}, widths = {6, 128, 136};
  for (const int count : counts) {
    for (const std::int64_t width : widths) {
      const auto beside = static_cast<int>(random.below(static_cast<std::uint64_t>(count) + 1));
      expect_equal_products<float>(random, count, 1 + random.below(30), width, beside);
      expect_equal_products<Half>(random, count, 1 + random.below(30), width, beside);
      expect_equal_products<BFloat16>(random, count, 1 + random.below(30), width, beside);
    }
  }
  expect_equal_products<float>(random, 5, scaled(300'000, 2'000), 8, 1);
}

// So many examples that a warp takes several, one after the other.
TEST(DeviceInteractionTest, AWarpTakesSeveralExamples) {
  Seeded random(run_seed() + 701);
  for (const int count : {5, 20}) {
    expect_equal_products<Half>(random, count, scaled(40'000, 6'000), 8, 1);
    expect_equal_products<BFloat16>(random, count, scaled(40'000, 6'000), 8, 2);
    expect_equal_products<float>(random, count, scaled(40'000, 6'000), 8, 2);
  }
}

// Sums that are not exact, against those in double: within 2e-6 of the sum of the products' sizes.
TEST(DeviceInteractionTest, FloatsKeepTheirPrecision) {
  Seeded random(run_seed() + 703);
  for (const int count : {3, 17, 32}) {
    for (const std::int64_t width : {4, 100, 260}) {
      TestContext context;
      constexpr std::int64_t kBatch = 7;
      const InteractionCase<float> drawn(random, count, kBatch, width, 1, false);
      Interaction call = drawn.call;
      std::vector<Buffer> uploads, outputs;
      std::vector<void*> pointers;
      for (int i = 0; i < count; ++i) {
        call.vectors[i] = uploads.emplace_back(context.upload(drawn.vectors[i])).as<float>();
        pointers.push_back(outputs.emplace_back(context.allocate(kBatch * width * 4)).data);
      }
      const Buffer gradient = context.upload(drawn.gradient);
      const Buffer out = context.allocate(kBatch * call.columns() * 4);
      expect_ok(dot_interaction(context, call, out.data));
      expect_ok(dot_interaction_gradients(context, call, gradient.data, pointers));
      const auto products = context.download<float>(out, kBatch * call.columns());
      for (std::int64_t example = 0; example < kBatch; ++example) {
        const float* of_products = drawn.gradient.data() + example * call.columns() + width;
        const auto value = [&](int i, std::int64_t c) {
          return double{drawn.vectors[i][example * width + c]};
        };
        std::vector<std::vector<double>> weights(count, std::vector<double>(count));
        std::int64_t at = example * call.columns() + width;
        for (int i = 0; i < count; ++i) {
          for (int j = i + 1; j < count; ++j, ++at) {
            weights[i][j] = weights[j][i] = double{*of_products++};
            double sum = 0, size = 0;
            for (std::int64_t c = 0; c < width; ++c) {
              sum += value(i, c) * value(j, c), size += std::abs(value(i, c) * value(j, c));
            }
            ASSERT_NEAR(products[at], sum, 2e-6 * size) << count << " of " << width;
          }
        }
        for (int i = 0; i < count; ++i) {
          const auto found = context.download<float>(outputs[i], kBatch * width);
          for (std::int64_t c = 0; c < width; ++c) {
            double sum = i == 0 ? double{drawn.gradient[example * call.columns() + c]} : 0.0;
            double size = std::abs(sum);
            for (int j = 0; j < count; ++j) {
              sum += weights[i][j] * value(j, c), size += std::abs(weights[i][j] * value(j, c));
            }
            ASSERT_NEAR(found[example * width + c], sum, 2e-6 * size) << count << " of " << width;
          }
        }
      }
    }
  }
}

// Vectors that are aligned to 4 and 8 bytes only.
TEST(DeviceInteractionTest, VectorsNeedNotBeAligned) {
  Seeded random(run_seed() + 702);
  for (const std::int64_t shift : {2, 4}) {
    expect_equal_products<Half>(random, 9, 20, 64, 1, shift);
    expect_equal_products<BFloat16>(random, 9, 20, 64, 1, shift);
    expect_equal_products<float>(random, 9, 20, 64, 1, shift);
  }
}

}  // namespace
}  // namespace sok::cuda
