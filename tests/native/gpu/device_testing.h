// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// What the native tests on a GPU share: device memory without TensorFlow, and a table on each
// device.
#ifndef SOK_TESTS_NATIVE_GPU_DEVICE_TESTING_H_
#define SOK_TESTS_NATIVE_GPU_DEVICE_TESTING_H_

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <utility>

#include "cuda/stages.h"
#include "tests/native/batch.h"

namespace sok::cuda {

inline std::int64_t environment(const char* name, std::int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}
// Added to every seed.
inline std::uint64_t run_seed() {
  return static_cast<std::uint64_t>(environment("SOK_TEST_SEED", 0));
}
inline bool under_sanitizer() { return environment("SOK_TEST_SCALE", 1) > 1; }
// Under a sanitizer tests do a hundredth of the work.
inline std::int64_t scaled(std::int64_t count, std::int64_t least = 1) {
  return std::max(least, count / environment("SOK_TEST_SCALE", 1));
}

inline void expect_ok(const Status& status) { ASSERT_TRUE(status.ok()) << status.message(); }
inline void expect_ok(cudaError_t error) {
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
}

class TestContext final : public Context {
 public:
  TestContext() { expect_ok(cudaStreamCreate(&stream_)); }
  ~TestContext() override { expect_ok(cudaStreamDestroy(stream_)); }
  void* stream() override { return stream_; }
  Buffer allocate(std::size_t bytes) override {
    void* data = nullptr;
    if (allocations_left == 0) return {};
    if (allocations_left > 0) --allocations_left;
    if (cudaMalloc(&data, std::max<std::size_t>(1, bytes)) != cudaSuccess) {
      cudaGetLastError();
      return {};
    }
    return {std::shared_ptr<void>(data, cudaFree), data, bytes};
  }
  Buffer allocate_at_once(std::size_t bytes) override {
    return is_full ? Buffer() : allocate(bytes);
  }
  Buffer allocate_pinned(std::size_t bytes) override {
    void* data = nullptr;
    if (cudaMallocHost(&data, std::max<std::size_t>(1, bytes)) != cudaSuccess) return {};
    return {std::shared_ptr<void>(data, cudaFreeHost), data, bytes, true};
  }
  bool fixed_order() const override { return in_order; }

  std::int64_t allocations_left = -1;  // -1: as many as there is memory for
  bool is_full = false;                // for those who would not wait for memory
  bool in_order = false;

  // Copies between the host and new device memory.
  template <typename T>
  Buffer upload(const std::vector<T>& host) {
    Buffer buffer = allocate(host.size() * sizeof(T));
    EXPECT_NE(buffer.data, nullptr);
    expect_ok(
        cudaMemcpy(buffer.data, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return buffer;
  }
  template <typename T>
  std::vector<T> download(const Buffer& buffer, std::size_t count) {
    std::vector<T> host(count);
    expect_ok(cudaStreamSynchronize(stream_));
    expect_ok(cudaMemcpy(host.data(), buffer.data, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  cudaStream_t stream_ = nullptr;
};

inline std::unique_ptr<Table> make_device_table(Context& context, TableConfig config) {
  std::unique_ptr<Table> table;
  expect_ok(Table::create(context, std::move(config), &table));
  return table;
}

inline std::vector<Row> resolve_all(TestContext& context, Table& table,
                                    const std::vector<Key>& keys, bool insert) {
  const auto count = static_cast<std::int64_t>(keys.size());
  const Buffer ids = context.upload(keys), rows = context.allocate(keys.size() * sizeof(Row));
  if (insert) expect_ok(reserve(context, &table, {{ids.as<Key>(), count}}));
  expect_ok(resolve(context, &table, ids.as<Key>(), count, insert, rows.as<Row>()));
  return context.download<Row>(rows, keys.size());
}

// The table's counters.
inline std::map<std::string, std::int64_t> stats_of(Context& context, Table& table) {
  std::vector<std::pair<std::string, std::int64_t>> stats;
  expect_ok(table.stats(context, &stats));
  return {stats.begin(), stats.end()};
}

// Every key with the columns of all planes.
using Contents = std::map<Key, std::vector<float>>;

inline Contents contents_of(TestContext& context, Table& table) {
  std::int64_t count = 0;
  Buffer keys, rows;
  expect_ok(table.entries(context, &count, &keys, &rows));
  const auto host_keys = context.download<Key>(keys, count);
  Contents contents;
  for (const Key key : host_keys) EXPECT_TRUE(contents.try_emplace(key).second) << key << " twice";
  for (int plane = 0; plane < table.plane_count(); ++plane) {
    const std::int64_t width = table.plane_spec(plane).width;
    const Buffer out = context.allocate(count * width * sizeof(float));
    expect_ok(read_plane(context, table, plane, rows.as<Row>(), count, out.as<float>()));
    const auto values = context.download<float>(out, count * width);
    for (std::int64_t i = 0; i < count; ++i) {
      auto& columns = contents[host_keys[i]];
      columns.insert(columns.end(), values.begin() + i * width, values.begin() + (i + 1) * width);
    }
  }
  return contents;
}

inline Contents contents_of(cpu::Table& table) {
  cpu::ThreadExecutor executor(2);
  std::vector<Key> keys;
  std::vector<Row> rows;
  table.entries(&keys, &rows);
  Contents contents;
  for (int plane = 0; plane < table.plane_count(); ++plane) {
    const std::int64_t width = table.plane_spec(plane).width;
    std::vector<float> values(keys.size() * width);
    cpu::read_plane(executor, table, plane, rows.data(), static_cast<std::int64_t>(keys.size()),
                    values.data());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      auto& columns = contents[keys[i]];
      columns.insert(columns.end(), values.begin() + i * width, values.begin() + (i + 1) * width);
    }
  }
  return contents;
}

// Sums are in any order on a device; everything else agrees to the bit.
inline void expect_equal(const Contents& host, const Contents& device, float tolerance) {
  ASSERT_EQ(host.size(), device.size());
  for (const auto& [key, columns] : host) {
    const auto found = device.find(key);
    ASSERT_NE(found, device.end()) << "key " << key << " is not on the device";
    ASSERT_EQ(columns.size(), found->second.size());
    for (std::size_t c = 0; c < columns.size(); ++c) {
      ASSERT_NEAR(columns[c], found->second[c], tolerance * (1 + std::abs(columns[c])))
          << "key " << key << " column " << c;
    }
  }
}

// A batch in device memory.
struct DeviceBatch {
  Buffer ids, weights, splits, gradients;
  std::int64_t bags_count, ids_count;

  DeviceBatch(TestContext& context, const cpu::Batch& batch)
      : ids(context.upload(batch.ids)),
        weights(context.upload(batch.weights)),
        splits(context.upload(batch.splits)),
        gradients(context.upload(batch.gradients)),
        bags_count(batch.bag_count()),
        ids_count(static_cast<std::int64_t>(batch.ids.size())) {}

  Bags bags(Combiner combiner, bool weighted) const {
    Bags result;
    result.ids = ids.as<Key>();
    result.weights = weighted ? weights.as<float>() : nullptr;
    result.row_splits = splits.as<std::int64_t>();
    result.bags = bags_count;
    result.known_count = ids_count;
    result.combiner = combiner;
    return result;
  }
};

// The scalars of a step.
struct DeviceScalars {
  Buffer iterations, scale, apply;
  DeviceScalars(TestContext& context, std::int64_t step, float scale_, bool apply_ = true)
      : iterations(context.upload(std::vector<std::int64_t>{step - 1})),
        scale(context.upload(std::vector<float>{scale_})),
        apply(context.upload(std::vector<char>{apply_})) {}
  StepScalars get() const {
    return {iterations.as<std::int64_t>(), scale.as<float>(), apply.as<bool>()};
  }
};

}  // namespace sok::cuda

#endif  // SOK_TESTS_NATIVE_GPU_DEVICE_TESTING_H_
