// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Times the stages on a GPU without TensorFlow: what the kernels themselves take.
//
//   stages CASE_FILE NAME      CASE_FILE: batches of ids, written by cases.py
//   stages keys                find and insert at several widths and loads
//
// Prints one JSON object a line. Times are medians of event intervals over back-to-back calls,
// which rotate through all batches of the file.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "cuda/stages.h"

namespace {

using namespace sok;  // NOLINT
using cuda::Buffer;

#define CHECK_CUDA(call)                                                \
  if (cudaError_t error = (call); error != cudaSuccess) {               \
    std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
    std::exit(1);                                                       \
  }

void check(const Status& status) {
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

double median_ms(BenchContext& context, const std::function<void(int)>& call, int repeats = 40,
                 int warm = 10) {
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

double copy_gbs(BenchContext& context) {
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

// A file of cases.py: header {tables, rows, dim, batch, batches, hotness or 0}, then for each batch
// and table the number of ids, the ids and batch + 1 row splits.
struct Case {
  std::int64_t tables, rows, dim, bags, batches, hotness;
  std::vector<std::vector<Buffer>> ids, splits;
  std::vector<std::vector<std::int64_t>> counts;
  std::vector<double> unique;

  static Case read(BenchContext& context, const char* path) {
    std::ifstream in(path, std::ios::binary);
    Case c{};
    in.read(reinterpret_cast<char*>(&c), 6 * sizeof(std::int64_t));
    c.ids.resize(c.batches);
    c.splits.resize(c.batches);
    c.counts.resize(c.batches);
    const auto upload = [&](std::int64_t count) {
      std::vector<std::int64_t> host(count);
      in.read(reinterpret_cast<char*>(host.data()), count * sizeof(std::int64_t));
      Buffer buffer = context.allocate(count * sizeof(std::int64_t));
      CHECK_CUDA(cudaMemcpy(buffer.data, host.data(), count * sizeof(std::int64_t),
                            cudaMemcpyHostToDevice));
      return buffer;
    };
    for (int b = 0; b < c.batches; ++b) {
      double unique = 0;
      in.read(reinterpret_cast<char*>(&unique), sizeof unique);
      c.unique.push_back(unique);
      for (int t = 0; t < c.tables; ++t) {
        std::int64_t count = 0;
        in.read(reinterpret_cast<char*>(&count), sizeof count);
        c.counts[b].push_back(count);
        c.ids[b].push_back(upload(count));
        c.splits[b].push_back(upload(c.bags + 1));
      }
    }
    if (!in) {
      std::fprintf(stderr, "%s is cut short\n", path);
      std::exit(1);
    }
    return c;
  }

  // So many batches in which every hundredth id of a table is one that no batch had before.
  Case with_new_ids(BenchContext& context, int steps) const {
    Case fresh = *this;
    fresh.batches = steps;
    std::vector<Key> next(tables, rows);
    for (auto* lists : {&fresh.ids, &fresh.splits}) lists->assign(steps, {});
    fresh.counts.assign(steps, {});
    for (int b = 0; b < steps; ++b) {
      const auto from = static_cast<std::size_t>(b % batches);
      fresh.splits[b] = splits[from];
      fresh.counts[b] = counts[from];
      for (int t = 0; t < tables; ++t) {
        std::vector<Key> host(counts[from][t]);
        const std::size_t bytes = host.size() * sizeof(Key);
        CHECK_CUDA(cudaMemcpy(host.data(), ids[from][t].data, bytes, cudaMemcpyDeviceToHost));
        for (std::size_t i = 0; i < host.size(); i += 100) host[i] = next[t]++;
        fresh.ids[b].push_back(context.allocate(bytes));
        CHECK_CUDA(cudaMemcpy(fresh.ids[b][t].data, host.data(), bytes, cudaMemcpyHostToDevice));
      }
    }
    return fresh;
  }

  Bags bags_of(int batch, int table) const {
    Bags b;
    b.ids = ids[batch][table].as<Key>();
    b.bags = bags;
    b.known_count = counts[batch][table];
    if (hotness > 0) {
      b.hotness = hotness;
    } else {
      b.row_splits = splits[batch][table].as<std::int64_t>();
    }
    return b;
  }
};

std::unique_ptr<cuda::Table> make_table(BenchContext& context, std::int64_t dim, std::int64_t rows,
                                        bool is_static) {
  TableConfig config;
  config.name = "bench";
  config.dimension = dim;
  (is_static ? config.rows : config.capacity) = rows;
  config.initializer = {InitKind::kUniform, -0.05f, 0.05f, 7};
  std::unique_ptr<cuda::Table> table;
  check(cuda::Table::create(context, config, &table));
  return table;
}

void insert_range(BenchContext& context, cuda::Table* table, std::int64_t begin, std::int64_t end) {
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

void run_case(BenchContext& context, const char* path, const std::string& name, double copy) {
  const Case c = Case::read(context, path);
  const std::size_t out_floats = static_cast<std::size_t>(c.bags) * c.dim;
  std::vector<Buffer> outputs, gradients;
  for (int t = 0; t < c.tables; ++t) {
    outputs.push_back(context.allocate(out_floats * 4));
    gradients.push_back(context.allocate(out_floats * 4));
    CHECK_CUDA(cudaMemsetAsync(gradients[t].data, 0x3c, out_floats * 4, context.raw()));
  }
  double unique = 0;
  for (double u : c.unique) unique += u / static_cast<double>(c.batches);
  const double row = static_cast<double>(c.dim) * 4;
  const double out_bytes = static_cast<double>(out_floats * 4 * c.tables);
  for (const bool is_static : {true, false}) {
    std::vector<std::unique_ptr<cuda::Table>> tables;
    for (int t = 0; t < c.tables; ++t) {
      tables.push_back(make_table(context, c.dim, is_static ? c.rows : c.rows * 9 / 8, is_static));
      if (!is_static) insert_range(context, tables.back().get(), 0, c.rows);
    }
    const Case* current = &c;
    const auto forward = [&](int i, bool insert) {
      std::vector<cuda::LookupFeature> features;
      for (int t = 0; t < c.tables; ++t) {
        features.push_back({tables[t].get(),
                            current->bags_of(i % current->batches, t),
                            {RowType::kFloat32, outputs[t].data},
                            0.0f});
      }
      check(cuda::lookup(context, features, insert));
    };
    const auto report = [&](const char* what, double ms, double bytes) {
      std::printf(
          "{\"case\": \"%s\", \"table\": \"%s\", \"what\": \"%s\", \"ms\": %.4f, "
          "\"least_bytes\": %.0f, \"fraction_of_copy\": %.3f}\n",
          name.c_str(), is_static ? "static" : "hash", what, ms, bytes, bytes / ms / 1e6 / copy);
      std::fflush(stdout);
    };
    report("forward", median_ms(context, [&](int i) { forward(i, false); }),
           out_bytes + unique * row);
    if (!is_static) {
      report("forward, training", median_ms(context, [&](int i) { forward(i, true); }),
             out_bytes + unique * row);
    }
    struct Rule {
      const char* name;
      double state_bytes;
    };
    for (const Rule& rule : {Rule{"sgd", 0}, Rule{"rowwise_adagrad", 8},
                             Rule{"adagrad", 8.0 * c.dim}, Rule{"adam", 16.0 * c.dim}}) {
      const OptimizerSpec* spec = nullptr;
      check(find_optimizer(rule.name, &spec));
      std::vector<float> hyper(spec->hyper.size(), 0.0f);
      for (std::size_t h = 0; h < hyper.size(); ++h) {
        hyper[h] = spec->hyper[h] == "learning_rate" ? 0.01f
                   : spec->hyper[h] == "beta_1"      ? 0.9f
                   : spec->hyper[h] == "beta_2"      ? 0.999f
                   : spec->hyper[h] == "epsilon"     ? 1e-7f
                                                     : 0.0f;
      }
      struct Scalars {
        std::int64_t iterations;
        float scale;
        bool apply;
      } scalars{0, 1.0f, true};
      Buffer device = context.allocate(sizeof scalars);
      Buffer device_hyper = context.allocate(hyper.size() * 4);
      CHECK_CUDA(cudaMemcpyAsync(device.data, &scalars, sizeof scalars, cudaMemcpyHostToDevice,
                                 context.raw()));
      CHECK_CUDA(cudaMemcpyAsync(device_hyper.data, hyper.data(), hyper.size() * 4,
                                 cudaMemcpyHostToDevice, context.raw()));
      const auto* at = device.as<Scalars>();
      const auto backward = [&](int i) {
        std::vector<cuda::MergeUpdate> updates;
        for (int t = 0; t < c.tables; ++t) {
          cuda::MergeUpdate update;
          update.update.table = tables[t].get();
          update.update.optimizer = spec;
          update.update.hyper = device_hyper.as<float>();
          update.update.initials.assign(hyper.size(), 0.1f);
          update.features.push_back(
              {current->bags_of(i % current->batches, t), {RowType::kFloat32, gradients[t].data}});
          updates.push_back(std::move(update));
        }
        check(cuda::merge_update(context, updates, {&at->iterations, &at->scale, &at->apply}));
      };
      const std::string what = std::string("step ") + rule.name;
      const double step_bytes = 2 * out_bytes + 3 * unique * row + unique * rule.state_bytes;
      report(what.c_str(),
             median_ms(context,
                       [&](int i) {
                         forward(i, !is_static);
                         backward(i);
                       }),
             step_bytes);
      if (is_static || what != "step rowwise_adagrad") continue;
      constexpr int kSteps = 50;
      const Case fresh = c.with_new_ids(context, kSteps);
      current = &fresh;
      int next = 0;
      report("step rowwise_adagrad, 1 % new",
             median_ms(
                 context,
                 [&](int) {
                   forward(next, true);
                   backward(next++);
                 },
                 kSteps - 10, 10),
             step_bytes);
      current = &c;
    }
  }
}

void run_keys(BenchContext& context, double copy) {
  constexpr std::int64_t kKeys = 1 << 20;
  for (const std::int64_t dim : {8, 32, 64, 128}) {
    constexpr std::int64_t kCapacity = 16 << 20;  // slots, about
    for (const double load : {0.5, 0.75, 0.875}) {
      auto table = make_table(context, dim, kCapacity * 7 / 8, false);
      const auto resident =
          static_cast<std::int64_t>(load * kCapacity) - 12 * kKeys * (load > 0.6 ? 0 : 0);
      insert_range(context, table.get(), 0,
                   std::min<std::int64_t>(resident, kCapacity * 7 / 8 - 64));
      std::vector<Buffer> sets;
      Buffer out = context.allocate(kKeys * dim * 4), rows = context.allocate(kKeys * sizeof(Row));
      for (int s = 0; s < 8; ++s) {
        std::vector<Key> host(kKeys);
        for (auto& key : host) {
          key = static_cast<Key>(((static_cast<std::uint64_t>(std::rand()) << 31) ^ std::rand()) %
                                 static_cast<std::uint64_t>(resident));
        }
        sets.push_back(context.allocate(kKeys * sizeof(Key)));
        CHECK_CUDA(
            cudaMemcpy(sets[s].data, host.data(), kKeys * sizeof(Key), cudaMemcpyHostToDevice));
      }
      const auto report = [&](const char* what, double ms, double bytes_a_key) {
        std::printf(
            "{\"case\": \"keys\", \"width\": %lld, \"load\": %.3f, \"what\": \"%s\", \"ms\": %.4f, "
            "\"gkeys_s\": %.3f, \"fraction_of_copy\": %.3f}\n",
            static_cast<long long>(dim), load, what, ms, kKeys / ms / 1e6,
            bytes_a_key * kKeys / ms / 1e6 / copy);
        std::fflush(stdout);
      };
      const double row = static_cast<double>(dim) * 4;
      report("find slot",
             median_ms(context,
                       [&](int i) {
                         check(cuda::resolve(context, table.get(), sets[i % 8].as<Key>(), kKeys,
                                             false, rows.as<Row>()));
                       }),
             8 + 4);
      report("find with values",
             median_ms(context,
                       [&](int i) {
                         Bags bags;
                         bags.ids = sets[i % 8].as<Key>();
                         bags.bags = bags.known_count = kKeys;
                         check(cuda::lookup(
                             context, {{table.get(), bags, {RowType::kFloat32, out.data}, 0.0f}},
                             false));
                       }),
             8 + 2 * row);
      report("find_or_insert, all there",
             median_ms(context,
                       [&](int i) {
                         check(cuda::resolve(context, table.get(), sets[i % 8].as<Key>(), kKeys,
                                             true, rows.as<Row>()));
                       }),
             8 + 4);
      // Inserts into a table that holds `load` of its capacity; it is filled anew for every repeat.
      std::vector<float> times;
      for (int repeat = 0; repeat < 5; ++repeat) {
        auto fresh = make_table(context, dim, kCapacity * 7 / 8, false);
        const auto before = std::min<std::int64_t>(resident, kCapacity * 7 / 8 - 64) - kKeys;
        insert_range(context, fresh.get(), 0, before);
        std::vector<Key> host(kKeys);
        for (std::int64_t i = 0; i < kKeys; ++i) host[i] = before + i;
        CHECK_CUDA(
            cudaMemcpy(sets[0].data, host.data(), kKeys * sizeof(Key), cudaMemcpyHostToDevice));
        check(cuda::reserve(context, fresh.get(), {{sets[0].as<Key>(), kKeys}}));
        cudaEvent_t a, b;
        CHECK_CUDA(cudaEventCreate(&a));
        CHECK_CUDA(cudaEventCreate(&b));
        CHECK_CUDA(cudaEventRecord(a, context.raw()));
        check(cuda::resolve(context, fresh.get(), sets[0].as<Key>(), kKeys, true, rows.as<Row>()));
        CHECK_CUDA(cudaEventRecord(b, context.raw()));
        CHECK_CUDA(cudaStreamSynchronize(context.raw()));
        float ms = 0;
        CHECK_CUDA(cudaEventElapsedTime(&ms, a, b));
        times.push_back(ms);
      }
      std::sort(times.begin(), times.end());
      report("insert with initial values", times[2], 8 + row);
    }
  }
}

}  // namespace

// The interaction of a DLRM: 27 vectors of 128, batch 65,536.
void run_interaction(BenchContext& context, double copy) {
  constexpr int kVectors = 27;
  constexpr std::int64_t kBatch = 65'536, kWidth = 128;
  for (const RowType type : {RowType::kFloat32, RowType::kFloat16}) {
    Interaction call;
    call.type = type;
    call.batch = kBatch;
    call.width = kWidth;
    call.beside = 1;
    std::vector<Buffer> memory;
    std::vector<void*> gradients;
    const std::size_t of_vector = kBatch * kWidth * row_type_bytes(type);
    const auto allocate = [&](std::size_t bytes) {
      memory.push_back(context.allocate(bytes));
      CHECK_CUDA(cudaMemset(memory.back().data, 0, bytes));
      return memory.back().data;
    };
    for (int i = 0; i < kVectors; ++i) {
      call.vectors.push_back(allocate(of_vector));
      gradients.push_back(allocate(of_vector));
    }
    const std::size_t of_result = kBatch * call.columns() * row_type_bytes(type);
    void* result = allocate(of_result);
    const auto report = [&](const char* what, double ms, std::size_t bytes) {
      std::printf(
          "{\"case\": \"interaction\", \"bytes\": %d, \"what\": \"%s\", \"ms\": %.4f, "
          "\"fraction_of_copy\": %.3f}\n",
          row_type_bytes(type), what, ms, bytes / ms / 1e6 / copy);
    };
    report("forward",
           median_ms(context, [&](int) { check(cuda::dot_interaction(context, call, result)); }),
           kVectors * of_vector + of_result);
    report("backward",
           median_ms(context,
                     [&](int) {
                       check(cuda::dot_interaction_gradients(context, call, result, gradients));
                     }),
           2 * kVectors * of_vector + of_result);
  }
}

int main(int argc, char** argv) {
  BenchContext context;
  const double copy = copy_gbs(context);
  std::printf("{\"copy_gbs\": %.1f}\n", copy);
  if (argc == 2 && std::string(argv[1]) == "keys") {
    run_keys(context, copy);
    return 0;
  }
  if (argc == 2 && std::string(argv[1]) == "interaction") {
    run_interaction(context, copy);
    return 0;
  }
  if (argc != 3) {
    std::fprintf(stderr, "usage: stages CASE_FILE NAME | stages keys | stages interaction\n");
    return 2;
  }
  run_case(context, argv[1], argv[2], copy);
  return 0;
}
