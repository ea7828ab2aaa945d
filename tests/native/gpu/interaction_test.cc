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
                           int beside) {
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
    uploads.push_back(context.upload(drawn.vectors[i]));
    call.vectors[i] = uploads.back().data;
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
  std::vector<int> counts = {2, 3, 8, 9, 27, 28, 29, 33, 64, 128};
  std::vector<std::int64_t> widths = {1, 4, 6, 16, 100, 128, 132, 260};
  if (under_sanitizer()) counts = {3, 27, 33}, widths = {6, 128};
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

}  // namespace
}  // namespace sok::cuda
