// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// More features than a launch's parameters have room for: as many kernels as for one, and equal
// results. What the CPU gives for one feature after the other is expected of all in one call.
#include <limits>

#include "cuda/tuning.h"
#include "tests/native/gpu/device_testing.h"

namespace sok::cuda {
namespace {

using cpu::Batch;
using cpu::config_of;
using cpu::Seeded;

constexpr int kFeatures = 2 * tuning::kItemsInParameters + 7;

// A table and many batches of its ids, each a feature.
class ManyFeaturesTest : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr std::int64_t kWidth = 8, kIds = 300;

  ManyFeaturesTest() {
    TableConfig config = config_of(kWidth);
    if (GetParam()) {
      config.rows = kIds;
    } else {
      config.capacity = 100 * kIds;  // so that no batch has to be counted before it is inserted
    }
    host_ = cpu::make_table(config);
    device_ = make_device_table(context_, config);
    if (config.is_static()) host_->initialize_static(executor_);
    Seeded random(run_seed() + 500);
    for (int f = 0; f < kFeatures; ++f) {
      batches_.emplace_back(random, 1 + f % 7, kWidth, kIds);
      uploads_.emplace_back(context_, batches_.back());
    }
  }

  TestContext context_;
  cpu::ThreadExecutor executor_{2};
  std::unique_ptr<cpu::Table> host_;
  std::unique_ptr<Table> device_;
  std::vector<Batch> batches_;
  std::vector<DeviceBatch> uploads_;
};
INSTANTIATE_TEST_SUITE_P(Tables, ManyFeaturesTest, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& info) {
                           return info.param ? "static" : "hash";
                         });

TEST_P(ManyFeaturesTest, AreLookedUpInOneKernel) {
  std::vector<cpu::LookupFeature> host_features;
  std::vector<LookupFeature> features;
  std::vector<std::vector<float>> expected;
  std::vector<Buffer> outputs;
  for (int f = 0; f < kFeatures; ++f) {
    expected.emplace_back(batches_[f].bag_count() * kWidth);
    outputs.push_back(context_.allocate(expected[f].size() * sizeof(float)));
    host_features.push_back({host_.get(),
                             batches_[f].bags(Combiner::kMean, false),
                             {RowType::kFloat32, expected[f].data()},
                             0.0f});
    features.push_back({device_.get(),
                        uploads_[f].bags(Combiner::kMean, false),
                        {RowType::kFloat32, outputs[f].data},
                        0.0f});
  }
  expect_ok(cpu::lookup(executor_, host_features, true));
  expect_ok(lookup(context_, features, true));
  const std::int64_t before = kernels_launched();
  expect_ok(lookup(context_, features, true));
  EXPECT_LE(kernels_launched() - before, 2);
  for (int f = 0; f < kFeatures; ++f) {
    const auto found = context_.download<float>(outputs[f], expected[f].size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[f][i], 1e-4f * (1 + std::abs(expected[f][i])))
          << "feature " << f << " at " << i;
    }
  }
}

TEST_P(ManyFeaturesTest, AreMergedTogether) {
  std::vector<cpu::MergeFeature> host_features;
  std::vector<MergeFeature> features;
  for (int f = 0; f < kFeatures; ++f) {
    host_features.push_back(
        {batches_[f].bags(Combiner::kSum, true),
         {RowType::kFloat32, const_cast<float*>(batches_[f].gradients.data())}});
    features.push_back(
        {uploads_[f].bags(Combiner::kSum, true), {RowType::kFloat32, uploads_[f].gradients.data}});
  }
  cpu::Merge expected(executor_, *host_, host_features, kWidth);
  std::vector<Key> keys(expected.count());
  std::vector<float> sums(expected.count() * kWidth);
  expected.write(executor_, keys.data(), sums.data());
  Contents host, device;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    host[keys[k]].assign(&sums[k * kWidth], &sums[k * kWidth] + kWidth);
  }

  Buffer out_keys, out_sums;
  std::int64_t count = 0;
  const std::int64_t before = kernels_launched();
  expect_ok(
      merge(context_, device_.get(), features, [&](std::int64_t n, Key** k, float** g) -> Status {
        out_keys = context_.allocate(n * sizeof(Key));
        out_sums = context_.allocate(n * kWidth * sizeof(float));
        *k = out_keys.as<Key>();
        *g = out_sums.as<float>();
        count = n;
        return {};
      }));
  EXPECT_LE(kernels_launched() - before, 6);
  const auto found_keys = context_.download<Key>(out_keys, count);
  const auto found = context_.download<float>(out_sums, count * kWidth);
  for (std::int64_t k = 0; k < count; ++k) {
    device[found_keys[k]].assign(&found[k * kWidth], &found[k * kWidth] + kWidth);
  }
  expect_equal(host, device, 1e-4f);
}

TEST_P(ManyFeaturesTest, AreLookedAtForWhatIsNotFinite) {
  std::vector<Values> values;
  std::vector<BagGradients> gradients;
  for (int f = 0; f < kFeatures; ++f) {
    values.push_back({RowType::kFloat32, uploads_[f].gradients.data,
                      static_cast<std::int64_t>(batches_[f].gradients.size())});
    if (f % 5 == 0) values.push_back({RowType::kFloat32, nullptr, 0});
    gradients.push_back({uploads_[f].bags(Combiner::kSum, false),
                         {RowType::kFloat32, uploads_[f].gradients.data},
                         kWidth});
  }
  const Buffer finite = context_.allocate(1);
  // The last feature's last bag that reaches a row.
  const std::vector<std::int64_t>& splits = batches_.back().splits;
  std::int64_t bag = batches_.back().bag_count() - 1;
  while (bag > 0 && splits[bag] == splits[bag + 1]) --bag;
  float* last = uploads_.back().gradients.as<float>() + bag * kWidth;
  const float bad = std::numeric_limits<float>::infinity();
  for (const bool expected : {true, false}) {
    if (!expected) expect_ok(cudaMemcpy(last, &bad, sizeof bad, cudaMemcpyHostToDevice));
    const std::int64_t before = kernels_launched();
    expect_ok(all_finite(context_, values, finite.as<bool>()));
    EXPECT_EQ(context_.download<char>(finite, 1)[0] != 0, expected);
    expect_ok(bags_finite(context_, gradients, finite.as<bool>()));
    EXPECT_EQ(context_.download<char>(finite, 1)[0] != 0,
              expected || splits[bag] == splits[bag + 1]);
    EXPECT_EQ(kernels_launched() - before, 2);
  }
}

}  // namespace
}  // namespace sok::cuda
