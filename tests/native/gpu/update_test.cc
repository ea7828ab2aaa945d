// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Updates of random batches on a GPU, against the CPU's.
#include "cuda/tuning.h"
#include "tests/native/gpu/table_pair.h"

namespace sok::cuda {
namespace {

// What the device's table of a pair gets from a batch.
MergeUpdate update_of(const Pair& pair, const OptimizerSpec& spec, const Buffer& hyper,
                      const DeviceBatch& batch) {
  const auto initials = hyper_of(spec);
  MergeUpdate update;
  update.update.table = pair.device.get();
  update.update.optimizer = &spec;
  update.update.hyper = hyper.as<float>();
  update.update.initials.assign(initials.begin(), initials.end());
  MergeFeature feature;
  feature.bags = batch.bags(Combiner::kSum, true);
  feature.gradient = {RowType::kFloat32, batch.gradients.data};
  update.features = {feature};
  return update;
}

// A bag an id, as many ids of each row as `counts` says, in any order.
Batch batch_of_rows(Seeded& random, const std::vector<int>& counts, std::int64_t width) {
  std::vector<Key> ids;
  for (std::size_t k = 0; k < counts.size(); ++k) ids.insert(ids.end(), counts[k], k);
  for (std::size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[random.below(i)]);
  Batch batch(random, 0, width, 1);
  for (const Key id : ids) {
    batch.ids.push_back(id);
    batch.weights.push_back(static_cast<float>(random.below(17)) / 4.0f - 2.0f);
    batch.splits.push_back(static_cast<std::int64_t>(batch.ids.size()));
  }
  // Multiples of a 256th: sums of these are exact, in any order.
  for (std::size_t g = 0; g < ids.size() * width; ++g) {
    batch.gradients.push_back(static_cast<float>(random.below(1025)) / 256.0f - 2.0f);
  }
  return batch;
}

// A step of both tables, and one of the device's that is skipped.
void step_both(Pair& pair, const OptimizerSpec& spec, const Batch& batch, std::int64_t step) {
  const auto [keys, gradients] = pair.merged(batch, Combiner::kSum);
  pair.update_host(spec, Reach::kLocal, step, 0.5f, keys, gradients);

  const auto hyper = hyper_of(spec);
  const Buffer device_hyper = pair.context.upload(hyper);
  const DeviceBatch on_device(pair.context, batch);
  const DeviceScalars scalars(pair.context, step, 0.5f), skip(pair.context, step, 0.5f, false);
  const MergeUpdate update = update_of(pair, spec, device_hyper, on_device);
  expect_ok(merge_update(pair.context, {update}, scalars.get()));
  expect_ok(merge_update(pair.context, {update}, skip.get()));
  expect_ok(synchronise(pair.context));
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
      for (std::int64_t step = 1; step <= (under_sanitizer() ? 2 : 3); ++step) {
        Batch batch(random, scaled(2000, 60), width, 4000);
        for (std::size_t i = 0; i < batch.ids.size(); i += 3) batch.ids[i] = 17;
        // Sums of these are exact, in any order: rules that divide by a gradient's size would make
        // much of a last bit.
        for (float& g : batch.gradients) g = std::round(g * 256.0f) / 256.0f;
        pair.context.in_order = step == 2;
        step_both(pair, spec(), batch, step);
      }
      pair.expect_equal_tables();
      if (HasFatalFailure()) FAIL() << "width " << width << (is_static ? " static" : " hash");
    }
  }
}

// Rows of so many ids that blocks add them up, about each bound.
TEST(DeviceMergeUpdateTest, RowsOfManyIdsFollowTheCpu) {
  std::vector<std::int64_t> wide = {1, 3, 33, 64, 128, 300};
  if (under_sanitizer()) wide = {3, 128};
  const OptimizerSpec* adagrad = nullptr;
  expect_ok(find_optimizer("adagrad", &adagrad));
  constexpr int kAlone = tuning::kAlone, kPiece = tuning::kPiece;
  for (const std::vector<int>& counts :
       {std::vector<int>{1, kAlone, 2, kAlone + 1, kPiece - 1, 1, kPiece, kPiece + 1},
        std::vector<int>{2 * kPiece + 1, 40 * kPiece}, std::vector<int>{2 * kPiece + 1}}) {
    for (const std::int64_t width : wide) {
      Seeded random(run_seed() + 350 + static_cast<std::uint64_t>(width));
      Pair pair(config_of(width));
      for (const bool in_order : {false, true}) {
        const Batch batch = batch_of_rows(random, counts, width);
        pair.context.in_order = in_order;
        step_both(pair, *adagrad, batch, in_order ? 2 : 1);
      }
      pair.expect_equal_tables();
      if (HasFatalFailure()) FAIL() << "width " << width << ", " << counts.size() << " rows";
    }
  }
}

// All sums of pieces have room for the widest table's.
TEST(DeviceMergeUpdateTest, TablesOfDifferentWidthsAreCutInOneLaunch) {
  TestContext context;
  const OptimizerSpec* adagrad = nullptr;
  expect_ok(find_optimizer("adagrad", &adagrad));
  const Buffer hyper = context.upload(hyper_of(*adagrad));
  const DeviceScalars scalars(context, 1, 1.0f), skip(context, 1, 1.0f, false);
  Seeded random(run_seed() + 360);
  std::vector<std::unique_ptr<Pair>> pairs;
  std::vector<DeviceBatch> batches;
  std::vector<MergeUpdate> updates;
  for (const std::int64_t width : {132, 300, 132}) {
    pairs.push_back(std::make_unique<Pair>(config_of(width, 4000)));
    Pair& pair = *pairs.back();
    const Batch batch =
        batch_of_rows(random, {3, 2 * tuning::kPiece + 1, tuning::kAlone + 1}, width);
    const auto [keys, gradients] = pair.merged(batch, Combiner::kSum);
    pair.update_host(*adagrad, Reach::kLocal, 1, 1.0f, keys, gradients);
    batches.emplace_back(context, batch);
    updates.push_back(update_of(pair, *adagrad, hyper, batches.back()));
  }
  expect_ok(merge_update(context, updates, skip.get()));  // makes the planes of the states
  expect_ok(synchronise(context));
  const std::int64_t before = kernels_launched();
  expect_ok(merge_update(context, updates, scalars.get()));
  expect_ok(synchronise(context));
  EXPECT_LE(kernels_launched() - before, 4);
  for (auto& pair : pairs) pair->expect_equal_tables();
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
    MergeUpdate update = update_of(*pairs[t], *adagrad, device_hyper, batches[t]);
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
  EXPECT_LE(kernels_launched() - before, 2 * 4);
  // The same gradients once more, merged by now: widths share a kernel here.
  const std::int64_t between = kernels_launched();
  expect_ok(update(context, merged, DeviceScalars(context, 2, 1.0f).get()));
  expect_ok(synchronise(context));
  EXPECT_EQ(kernels_launched() - between, 1);
  for (auto& pair : pairs) pair->expect_equal_tables();
}

}  // namespace
}  // namespace sok::cuda
