// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Device memory without TensorFlow, timing, and tables with rows in them.
#ifndef SOK_BENCHMARKS_GPU_BENCH_CONTEXT_H_
#define SOK_BENCHMARKS_GPU_BENCH_CONTEXT_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "cuda/stages.h"

#define CHECK_CUDA(call)                                                \
  if (cudaError_t error = (call); error != cudaSuccess) {               \
    std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
    std::exit(1);                                                       \
  }

namespace sok::bench {

using cuda::Buffer;

inline void check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

class BenchContext final : public cuda::Context {
 public:
  BenchContext() {
    CHECK_CUDA(cudaStreamCreate(&stream_));
    cudaMemPool_t pool;
    CHECK_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
    std::uint64_t keep = UINT64_MAX;
    CHECK_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  }
  void* stream() override { return stream_; }
  Buffer allocate(std::size_t bytes) override {
    void* data = nullptr;
    if (cudaMallocAsync(&data, std::max<std::size_t>(bytes, 1), stream_) != cudaSuccess) return {};
    return {std::shared_ptr<void>(data, [this](void* p) { cudaFreeAsync(p, stream_); }), data,
            bytes};
  }
  Buffer allocate_pinned(std::size_t bytes) override {
    void* data = nullptr;
    if (cudaMallocHost(&data, bytes) != cudaSuccess) return {};
    return {std::shared_ptr<void>(data, [](void* p) { cudaFreeHost(p); }), data, bytes, true};
  }
  cudaStream_t raw() const { return stream_; }

 private:
  cudaStream_t stream_;
};

// Of one call, by the time between events.
inline double median_ms(BenchContext& context, const std::function<void(int)>& call,
                        int repeats = 40, int warm = 10) {
  for (int i = 0; i < warm; ++i) call(i);
  std::vector<cudaEvent_t> events(repeats + 1);
  for (auto& event : events) CHECK_CUDA(cudaEventCreate(&event));
  CHECK_CUDA(cudaEventRecord(events[0], context.raw()));
  for (int i = 0; i < repeats; ++i) {
    call(i);
    CHECK_CUDA(cudaEventRecord(events[i + 1], context.raw()));
  }
  CHECK_CUDA(cudaStreamSynchronize(context.raw()));
  std::vector<float> times(repeats);
  for (int i = 0; i < repeats; ++i)
    CHECK_CUDA(cudaEventElapsedTime(&times[i], events[i], events[i + 1]));
  std::sort(times.begin(), times.end());
  return times[repeats / 2];
}

// Gigabytes a second, read and written, of a copy within the device.
inline double copy_gbs(BenchContext& context) {
  const std::size_t bytes = std::size_t{4} << 30;
  Buffer a = context.allocate(bytes), b = context.allocate(bytes);
  CHECK_CUDA(cudaMemsetAsync(a.data, 1, bytes, context.raw()));
  const double ms = median_ms(
      context,
      [&](int) {
        CHECK_CUDA(cudaMemcpyAsync(b.data, a.data, bytes, cudaMemcpyDeviceToDevice, context.raw()));
      },
      15, 3);
  return 2.0 * static_cast<double>(bytes) / ms / 1e6;
}

inline std::unique_ptr<cuda::Table> make_table(BenchContext& context, std::int64_t dim,
                                               std::int64_t rows, bool is_static) {
  TableConfig config;
  config.name = "bench";
  config.dimension = dim;
  (is_static ? config.rows : config.capacity) = rows;
  config.initializer = {InitKind::kUniform, -0.05f, 0.05f, 7};
  std::unique_ptr<cuda::Table> table;
  check(cuda::Table::create(context, config, &table));
  return table;
}

inline void insert_range(BenchContext& context, cuda::Table* table, std::int64_t begin,
                         std::int64_t end) {
  constexpr std::int64_t kChunk = 1 << 20;
  for (std::int64_t at = begin; at < end; at += kChunk) {
    std::vector<Key> host(std::min(kChunk, end - at));
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = at + static_cast<Key>(i);
    Buffer keys = context.allocate(host.size() * sizeof(Key));
    CHECK_CUDA(cudaMemcpyAsync(keys.data, host.data(), host.size() * sizeof(Key),
                               cudaMemcpyHostToDevice, context.raw()));
    const auto count = static_cast<std::int64_t>(host.size());
    check(cuda::reserve(context, table, {{keys.as<Key>(), count}}));
    check(cuda::resolve(context, table, keys.as<Key>(), count, true, nullptr));
    check(cuda::synchronise(context));
  }
}

}  // namespace sok::bench

#endif  // SOK_BENCHMARKS_GPU_BENCH_CONTEXT_H_
