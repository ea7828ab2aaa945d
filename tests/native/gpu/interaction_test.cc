// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The dot interaction on a GPU against the CPU's: every sum is exact, so the bits agree.
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
