// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Whether a GPU finds in bags' gradients what the CPU finds: one bad value at a time, anywhere.
#include <limits>

#include "tests/native/gpu/device_testing.h"

namespace sok::cuda {
namespace {

using cpu::Batch;
using cpu::Seeded;

struct Case {
  std::int64_t width = 0;
  Combiner combiner = Combiner::kSum;
  bool weighted = false, ragged = true;
};

template <typename T>
void expect_equal_answers(Seeded& random, const Case& of) {
  TestContext context;
  cpu::ThreadExecutor executor(2);
  const Batch batch(random, 90, of.width, 50);
  const DeviceBatch on_device(context, batch);
  Bags bags = batch.bags(of.combiner, of.weighted);
  bags.known_count = static_cast<std::int64_t>(batch.ids.size());
  Bags device_bags = on_device.bags(of.combiner, of.weighted);
  if (!of.ragged) {
    bags.hotness = device_bags.hotness = 2;
    bags.row_splits = device_bags.row_splits = nullptr;
    bags.bags = device_bags.bags = bags.known_count / 2;
  }
  const Buffer finite = context.allocate(1);
  const float bad[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN(), 3e38f, 1.0f};
  int found = 0;
  for (int trial = 0; trial < scaled(60, 8); ++trial) {
    std::vector<T> gradients(bags.bags * of.width, from_float<T>(0.5f));
    const std::size_t at = random.below(gradients.size());
    gradients[at] = from_float<T>(bad[trial % 5]);
    const bool expected =
        cpu::bags_finite(executor, {{bags, {RowTypeOf<T>::kValue, gradients.data()}, of.width}});
    const Buffer upload = context.upload(gradients);
    expect_ok(bags_finite(context, {{device_bags, {RowTypeOf<T>::kValue, upload.data}, of.width}},
                          finite.as<bool>()));
    ASSERT_EQ(context.download<char>(finite, 1)[0] != 0, expected)
        << "width " << of.width << ", combiner " << static_cast<int>(of.combiner)
        << (of.weighted ? ", weighted" : "") << (of.ragged ? ", ragged" : "") << ", "
        << bad[trial % 5] << " at " << at;
    found += !expected;
  }
  EXPECT_GT(found, 0);
}

TEST(DeviceFiniteTest, OneBadValueAnywhereIsFoundAsOnTheCpu) {
  Seeded random(run_seed() + 800);
  std::vector<std::int64_t> widths = {1, 6, 8, 64, 128, 132};
  if (under_sanitizer()) widths = {6, 128};
  for (const std::int64_t width : widths) {
    for (const bool weighted : {false, true}) {
      for (const bool ragged : {false, true}) {
        for (const Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn}) {
          expect_equal_answers<float>(random, {width, combiner, weighted, ragged});
        }
        expect_equal_answers<Half>(random, {width, Combiner::kMean, weighted, ragged});
        expect_equal_answers<BFloat16>(random, {width, Combiner::kSum, weighted, ragged});
      }
    }
  }
}

}  // namespace
}  // namespace sok::cuda
