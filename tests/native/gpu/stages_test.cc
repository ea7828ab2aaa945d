// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Lookup, merge and update of random batches on a GPU, against the CPU's.
#include "tests/native/gpu/device_testing.h"

namespace sok::cuda {
namespace {

using cpu::Batch;
using cpu::config_of;
using cpu::Seeded;

constexpr Combiner kCombiners[] = {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn};
// A sanitizer sees one width of each kind.
std::vector<std::int64_t> widths() {
  if (under_sanitizer()) return {6, 128};
  return {1, 3, 4, 17, 64, 128, 260};
}
constexpr float kTolerance = 2e-5f;

// The step of an optimizer; hyper-parameters that every rule accepts.
std::vector<float> hyper_of(const OptimizerSpec& spec) {
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

TEST(DeviceLookupTest, FollowsTheCpu) {
  for (const std::int64_t width : widths()) {
    Seeded random(run_seed() + static_cast<std::uint64_t>(width));
    const Batch batch(random, scaled(600, 40), width, 90);
    for (const bool is_static : {false, true}) {
      for (const Combiner combiner : kCombiners) {
        for (const bool weighted : {false, true}) {
          TableConfig config = config_of(width);
          if (is_static) config.rows = 90;
          Pair pair(config);
          std::vector<float> expected(batch.bag_count() * width);
          cpu::LookupFeature feature;
          feature.table = pair.host.get();
          feature.bags = batch.bags(combiner, weighted);
          feature.output = {RowType::kFloat32, expected.data()};
          expect_ok(cpu::lookup(pair.executor, {feature}, true));

          const DeviceBatch on_device(pair.context, batch);
          const Buffer out = pair.context.allocate(expected.size() * sizeof(float));
          LookupFeature device_feature;
          device_feature.table = pair.device.get();
          device_feature.bags = on_device.bags(combiner, weighted);
          device_feature.output = {RowType::kFloat32, out.data};
          expect_ok(lookup(pair.context, {device_feature}, true));
          const auto found = pair.context.download<float>(out, expected.size());
          for (std::size_t i = 0; i < found.size(); ++i) {
            ASSERT_NEAR(found[i], expected[i], 1e-4f * (1 + std::abs(expected[i])))
                << "width " << width << " combiner " << static_cast<int>(combiner) << " at " << i;
          }
          pair.expect_equal_tables();
        }
      }
    }
  }
}

// Lookups of several tables, each with a number of bags of one id, on both devices: the same bits.
void expect_equal_rows(RowType type, std::int64_t width, DefaultRow missing, bool insert,
                       const std::vector<std::int64_t>& bags_of_tables, Seeded& random) {
  constexpr std::int64_t kIds = 400, kKnown = 200;
  TestContext context;
  cpu::ThreadExecutor executor{2};
  std::vector<std::unique_ptr<cpu::Table>> host;
  std::vector<std::unique_ptr<Table>> device;
  std::vector<std::vector<Key>> ids;
  std::vector<std::vector<char>> expected;
  std::vector<Buffer> uploads, outputs;
  std::vector<cpu::LookupFeature> host_features;
  std::vector<LookupFeature> features;
  for (const std::int64_t count : bags_of_tables) {
    TableConfig config = config_of(width);
    config.row_type = type;
    config.default_row = missing;
    if (host.size() % 3 == 1) config.rows = kIds;
    host.push_back(cpu::make_table(config));
    device.push_back(make_device_table(context, config));
    if (config.is_static()) host.back()->initialize_static(executor);
    const auto draw = [&](std::int64_t n) {
      std::vector<Key> keys(n);
      for (Key& key : keys) key = static_cast<Key>(random.below(kIds));
      return keys;
    };
    if (!config.is_static()) {
      const std::vector<Key> known = draw(kKnown);
      std::vector<Row> rows(kKnown);
      expect_ok(host.back()->reserve(executor, {{known.data(), kKnown}}));
      host.back()->find_or_insert(known.data(), kKnown, rows.data());
      host.back()->settle();
      resolve_all(context, *device.back(), known, true);
    }
    ids.push_back(draw(count));
    expected.emplace_back(count * width * row_type_bytes(type));
  }
  for (std::size_t t = 0; t < host.size(); ++t) {
    Bags bags;
    bags.ids = ids[t].data();
    bags.bags = bags.known_count = static_cast<std::int64_t>(ids[t].size());
    host_features.push_back({host[t].get(), bags, {type, expected[t].data()}, 0.0f});
    uploads.push_back(context.upload(ids[t]));
    outputs.push_back(context.allocate(expected[t].size()));
    bags.ids = uploads[t].as<Key>();
    features.push_back({device[t].get(), bags, {type, outputs[t].data}, 0.0f});
  }
  expect_ok(cpu::lookup(executor, host_features, insert));
  expect_ok(lookup(context, features, insert));
  for (std::size_t t = 0; t < host.size(); ++t) {
    ASSERT_EQ(context.download<char>(outputs[t], expected[t].size()), expected[t])
        << "width " << width << " table " << t;
  }
}

std::vector<RowType> row_types() {
  if (under_sanitizer()) return {RowType::kFloat32};
  return {RowType::kFloat32, RowType::kFloat16, RowType::kBFloat16};
}

void expect_equal_rows_of_widths(RowType type, const std::vector<std::int64_t>& widths) {
  for (const std::int64_t width : widths) {
    Seeded random(run_seed() + static_cast<std::uint64_t>(width));
    for (const bool insert : {false, true}) {
      expect_equal_rows(type, width, DefaultRow::kInitialValue, insert, {1, 33, scaled(3000, 300)},
                        random);
      expect_equal_rows(type, width, DefaultRow::kZeros, insert, {7, 0, 32}, random);
    }
  }
}

// Nothing is rounded.
TEST(DeviceLookupTest, OneIdABagGivesTheRowsThemselves) {
  for (const RowType type : row_types()) {
    const std::int64_t most = 4096 / row_type_bytes(type);
    expect_equal_rows_of_widths(type, {most / 8 - 8, most / 8 + 2, most + 8});
  }
}

// Rows of 512 to 4096 bytes go through the copy engine. (native.py knows these tests by their suite.)
TEST(DeviceCopyEngineTest, GivesTheRowsThemselves) {
  for (const RowType type : row_types()) {
    const std::int64_t most = 4096 / row_type_bytes(type);
    expect_equal_rows_of_widths(type, {most / 8, most / 8 + 4, most / 2 + 8, most});
  }
}

// So many bags that each warp of the device fills its ring many times, and more features than fit
// into a launch's parameters.
TEST(DeviceCopyEngineTest, GoesRoundItsRingManyTimes) {
  Seeded random(run_seed());
  for (const RowType type : row_types()) {
    const std::int64_t most = 4096 / row_type_bytes(type);
    for (const std::int64_t width : {most / 8, most / 4 + 8, most}) {
      expect_equal_rows(type, width, DefaultRow::kInitialValue, false,
                        {scaled(90000, 3000), scaled(40000, 3000)}, random);
    }
  }
  const std::vector<std::int64_t> many(40, scaled(700, 20));
  expect_equal_rows(RowType::kFloat32, 128, DefaultRow::kZeros, true, many, random);
}

TEST(DeviceMergeTest, FollowsTheCpuAndInFixedOrderToTheBitInEveryRun) {
  for (const std::int64_t width : widths()) {
    Seeded random(run_seed() + 100 + static_cast<std::uint64_t>(width));
    const Batch batch(random, scaled(4000, 100), width, 300);
    for (const bool is_static : {false, true}) {
      TableConfig config = config_of(width);
      if (is_static) config.rows = 300;
      Pair pair(config);
      const auto [keys, gradients] = pair.merged(batch, Combiner::kMean);
      std::map<Key, const float*> expected;
      for (std::size_t k = 0; k < keys.size(); ++k) expected[keys[k]] = &gradients[k * width];

      const DeviceBatch on_device(pair.context, batch);
      MergeFeature feature;
      feature.bags = on_device.bags(Combiner::kMean, true);
      feature.gradient = {RowType::kFloat32, on_device.gradients.data};
      std::vector<std::pair<std::vector<Key>, std::vector<float>>> in_order;
      for (int run = 0; run < 4; ++run) {
        pair.context.in_order = run > 0;
        Buffer out_keys, out_sums;
        std::int64_t count = 0;
        expect_ok(merge(pair.context, pair.device.get(), {feature},
                        [&](std::int64_t n, Key** k, float** g) -> Status {
                          out_keys = pair.context.allocate(n * sizeof(Key));
                          out_sums = pair.context.allocate(n * width * sizeof(float));
                          *k = out_keys.as<Key>();
                          *g = out_sums.as<float>();
                          count = n;
                          return {};
                        }));
        ASSERT_EQ(count, static_cast<std::int64_t>(keys.size()));
        const auto found_keys = pair.context.download<Key>(out_keys, count);
        const auto sums = pair.context.download<float>(out_sums, count * width);
        for (std::int64_t k = 0; k < count; ++k) {
          ASSERT_EQ(expected.count(found_keys[k]), 1u) << found_keys[k];
          for (std::int64_t c = 0; c < width; ++c) {
            ASSERT_NEAR(sums[k * width + c], expected[found_keys[k]][c], 1e-4f);
          }
        }
        in_order.emplace_back(found_keys, sums);
      }
      ASSERT_EQ(in_order[1], in_order[2]);
      ASSERT_EQ(in_order[1], in_order[3]);
    }
  }
}

class DeviceUpdateTest : public ::testing::TestWithParam<int> {
 protected:
  const OptimizerSpec& spec() const { return optimizer_specs()[GetParam()]; }
};
INSTANTIATE_TEST_SUITE_P(Rules, DeviceUpdateTest,
                         ::testing::Range(0, static_cast<int>(optimizer_specs().size())),
                         [](const ::testing::TestParamInfo<int>& info) {
                           return optimizer_specs()[info.param].name;
                         });

TEST_P(DeviceUpdateTest, MergeUpdateFollowsTheCpu) {
  for (const std::int64_t width : widths()) {
    // Rows with one id, with a few, and one with thousands, which is cut into pieces.
    Seeded random(run_seed() + 200 + static_cast<std::uint64_t>(width));
    for (const bool is_static : {false, true}) {
      TableConfig config = config_of(width);
      if (is_static) config.rows = 4000;
      Pair pair(config);
      const auto hyper = hyper_of(spec());
      const Buffer device_hyper = pair.context.upload(hyper);
      for (std::int64_t step = 1; step <= (under_sanitizer() ? 2 : 3); ++step) {
        Batch batch(random, scaled(2000, 60), width, 4000);
        for (std::size_t i = 0; i < batch.ids.size(); i += 3) batch.ids[i] = 17;
        // Sums of these are exact, in any order: rules that divide by a gradient's size would make
        // much of a last bit.
        for (float& g : batch.gradients) g = std::round(g * 256.0f) / 256.0f;
        const auto [keys, gradients] = pair.merged(batch, Combiner::kSum);
        pair.update_host(spec(), Reach::kLocal, step, 0.5f, keys, gradients);

        const DeviceBatch on_device(pair.context, batch);
        const DeviceScalars scalars(pair.context, step, 0.5f),
            skip(pair.context, step, 0.5f, false);
        MergeUpdate update;
        update.update.table = pair.device.get();
        update.update.optimizer = &spec();
        update.update.hyper = device_hyper.as<float>();
        update.update.initials.assign(hyper.begin(), hyper.end());
        MergeFeature feature;
        feature.bags = on_device.bags(Combiner::kSum, true);
        feature.gradient = {RowType::kFloat32, on_device.gradients.data};
        update.features = {feature};
        pair.context.in_order = step == 2;
        expect_ok(merge_update(pair.context, {update}, scalars.get()));
        expect_ok(merge_update(pair.context, {update}, skip.get()));
      }
      pair.expect_equal_tables();
      if (HasFatalFailure()) FAIL() << "width " << width << (is_static ? " static" : " hash");
    }
  }
}

TEST_P(DeviceUpdateTest, UpdateFollowsTheCpuLocallyAndGlobally) {
  for (const Reach reach : {Reach::kLocal, Reach::kGlobal}) {
    for (const std::int64_t width : {3, 64}) {
      Seeded random(run_seed() + 300 + static_cast<std::uint64_t>(width));
      Pair pair(config_of(width));
      const auto hyper = hyper_of(spec());
      const Buffer device_hyper = pair.context.upload(hyper);
      for (std::int64_t step = 1; step <= (under_sanitizer() ? 2 : 3); ++step) {
        std::vector<Key> keys(50);
        for (Key& key : keys) key = static_cast<Key>(random.below(60));  // with repetitions
        std::vector<float> gradients(keys.size() * width);
        for (float& g : gradients) g = Batch::number(random);
        pair.update_host(spec(), reach, step, 1.0f, keys, gradients);

        const Buffer device_keys = pair.context.upload(keys);
        const Buffer device_gradients = pair.context.upload(gradients);
        const DeviceScalars scalars(pair.context, step, 1.0f);
        std::vector<TableUpdate> updates(1);
        updates[0].table = pair.device.get();
        updates[0].optimizer = &spec();
        updates[0].hyper = device_hyper.as<float>();
        updates[0].initials.assign(hyper.begin(), hyper.end());
        updates[0].reach = reach;
        updates[0].keys = device_keys.as<Key>();
        updates[0].gradients = device_gradients.as<float>();
        updates[0].count = static_cast<std::int64_t>(keys.size());
        expect_ok(update(pair.context, updates, scalars.get()));
      }
      pair.expect_equal_tables();
    }
  }
}

TEST(DeviceUpdateTest, ManyTablesAreUpdatedInOnePass) {
  TestContext context;
  cpu::ThreadExecutor executor(2);
  const OptimizerSpec* adagrad = nullptr;
  expect_ok(find_optimizer("adagrad", &adagrad));
  const auto hyper = hyper_of(*adagrad);
  const Buffer device_hyper = context.upload(hyper);
  const DeviceScalars scalars(context, 1, 1.0f);
  Seeded random(run_seed() + 400);
  std::vector<std::unique_ptr<Pair>> pairs;
  std::vector<DeviceBatch> batches;
  std::vector<Buffer> uploads;
  std::vector<MergeUpdate> updates;
  std::vector<TableUpdate> merged;
  for (int t = 0; t < 70; ++t) {  // more than fit into a launch's parameters
    const std::int64_t width = 8 << t % 2;
    pairs.push_back(std::make_unique<Pair>(config_of(width, 1000)));
    const Batch batch(random, 20, width, 30);
    const auto [keys, gradients] = pairs[t]->merged(batch, Combiner::kSum);
    pairs[t]->update_host(*adagrad, Reach::kLocal, 1, 1.0f, keys, gradients);
    batches.emplace_back(context, batch);
    MergeUpdate update;
    update.update.table = pairs[t]->device.get();
    update.update.optimizer = adagrad;
    update.update.hyper = device_hyper.as<float>();
    update.update.initials.assign(hyper.begin(), hyper.end());
    MergeFeature feature;
    feature.bags = batches[t].bags(Combiner::kSum, true);
    feature.gradient = {RowType::kFloat32, batches[t].gradients.data};
    update.features = {feature};
    updates.push_back(update);
    TableUpdate second = update.update;
    second.keys = uploads.emplace_back(context.upload(keys)).as<Key>();
    second.gradients = uploads.emplace_back(context.upload(gradients)).as<float>();
    second.count = static_cast<std::int64_t>(keys.size());
    second.unique = true;
    merged.push_back(second);
    pairs[t]->update_host(*adagrad, Reach::kLocal, 2, 1.0f, keys, gradients);
  }
  // A step that is skipped makes the planes of the states.
  const DeviceScalars skip(context, 1, 1.0f, false);
  expect_ok(merge_update(context, updates, skip.get()));
  expect_ok(synchronise(context));
  const std::int64_t before = kernels_launched();
  expect_ok(merge_update(context, updates, scalars.get()));
  expect_ok(synchronise(context));
  // Two widths: each kernel once a width.
  EXPECT_LE(kernels_launched() - before, 2 * 5);
  // The same gradients once more, merged by now: widths share a kernel here.
  const std::int64_t between = kernels_launched();
  expect_ok(update(context, merged, DeviceScalars(context, 2, 1.0f).get()));
  expect_ok(synchronise(context));
  EXPECT_EQ(kernels_launched() - between, 1);
  for (auto& pair : pairs) pair->expect_equal_tables();
}

}  // namespace
}  // namespace sok::cuda
