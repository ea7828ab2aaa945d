// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// A table on each device, and what is done to both.
#ifndef SOK_TESTS_NATIVE_GPU_TABLE_PAIR_H_
#define SOK_TESTS_NATIVE_GPU_TABLE_PAIR_H_

#include "tests/native/gpu/device_testing.h"

namespace sok::cuda {

using cpu::Batch;
using cpu::config_of;
using cpu::Seeded;

constexpr Combiner kCombiners[] = {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn};
// A sanitizer sees one width of each kind.
inline std::vector<std::int64_t> widths() {
  if (under_sanitizer()) return {6, 128};
  return {1, 3, 4, 17, 64, 128, 260};
}
constexpr float kTolerance = 2e-5f;

// The step of an optimizer; hyper-parameters that every rule accepts.
inline std::vector<float> hyper_of(const OptimizerSpec& spec) {
  const std::map<std::string, float> values = {{"learning_rate", 0.1f},
                                               {"weight_decay", 0.01f},
                                               {"epsilon", 1e-5f},
                                               {"rho", 0.9f},
                                               {"beta_1", 0.9f},
                                               {"beta_2", 0.99f},
                                               {"momentum", 0.8f},
                                               {"initial_accumulator_value", 0.1f},
                                               {"learning_rate_power", -0.5f},
                                               {"l1_regularization_strength", 0.01f}};
  std::vector<float> hyper;
  for (const std::string& name : spec.hyper) {
    const auto found = values.find(name);
    hyper.push_back(found == values.end() ? 0.0f : found->second);
  }
  return hyper;
}

// A table on each device, an optimizer and the batches that both see.
struct Pair {
  TestContext context;
  cpu::ThreadExecutor executor{2};
  std::unique_ptr<cpu::Table> host;
  std::unique_ptr<Table> device;

  explicit Pair(const TableConfig& config)
      : host(cpu::make_table(config)), device(make_device_table(context, config)) {
    if (config.is_static()) host->initialize_static(executor);
  }
  void expect_equal_tables() {
    expect_equal(contents_of(*host), contents_of(context, *device), kTolerance);
  }
  // The keys and gradients that a merge of the batch gives on the CPU.
  std::pair<std::vector<Key>, std::vector<float>> merged(const Batch& batch, Combiner combiner) {
    cpu::MergeFeature feature;
    feature.bags = batch.bags(combiner, true);
    feature.gradient = {RowType::kFloat32, const_cast<float*>(batch.gradients.data())};
    cpu::Merge merge(executor, *host, {feature}, host->config().dimension);
    std::vector<Key> keys(merge.count());
    std::vector<float> gradients(merge.count() * host->config().dimension);
    merge.write(executor, keys.data(), gradients.data());
    return {keys, gradients};
  }
  void update_host(const OptimizerSpec& spec, Reach reach, std::int64_t step, float scale,
                   const std::vector<Key>& keys, const std::vector<float>& gradients) {
    std::vector<cpu::TableUpdate> updates = {{host.get(), &spec, hyper_of(spec), reach, keys.data(),
                                              gradients.data(),
                                              static_cast<std::int64_t>(keys.size()), false}};
    expect_ok(cpu::update(executor, updates, step, scale));
  }
};

}  // namespace sok::cuda

#endif  // SOK_TESTS_NATIVE_GPU_TABLE_PAIR_H_
