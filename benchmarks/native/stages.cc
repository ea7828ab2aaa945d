// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The CPU stages without TensorFlow: what a profiler or callgrind looks at.
//
//   stages [--threads N] [--width N] [--hotness N] [--repeats N] [--only NAME] [--ids zipf|uniform]
//
// Prints the least milliseconds of each stage. The shape is that of benchmarks/defaults.py: 1 M
// rows, 16,384 bags of 10 ids.
#include "cc_ops/cpu/stages.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cc_ops/cpu/executor.h"
#include "cc_ops/cpu/table.h"

namespace {

using sok::Key;
using sok::Row;
namespace cpu = sok::cpu;

constexpr std::int64_t kRows = 1000000;
constexpr std::int64_t kBags = 16384;
constexpr int kBatches = 4;
constexpr std::int64_t kNewRows = 1000000, kInsertBatch = 100000;

struct Options {
  int threads = 1;
  std::int64_t width = 64, hotness = 10;
  int repeats = 25;
  std::string only, ids;
};

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = arguments[i], value = arguments[i + 1];
    if (name == "--threads") options.threads = std::stoi(value);
    if (name == "--width") options.width = std::stoi(value);
    if (name == "--hotness") options.hotness = std::stoi(value);
    if (name == "--repeats") options.repeats = std::stoi(value);
    if (name == "--only") options.only = value;
    if (name == "--ids") options.ids = value;
  }
  return options;
}

void must(const sok::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

std::vector<Key> draw(const std::string& ids, std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  const double exponent = 1.0 - 1.1, high = std::pow(kRows + 1.0, exponent);
  std::vector<Key> result(count);
  for (Key& id : result) {
    const double u = unit(generator);
    if (ids == "uniform") {
      id = static_cast<Key>(u * kRows);
    } else {
      const auto rank = static_cast<Key>(std::pow(1 + u * (high - 1), 1 / exponent)) - 1;
      id = std::min<Key>(rank, kRows - 1) * 2654435761 % kRows;
    }
  }
  return result;
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), executor_(options.threads) {
    static_ = table(kRows);
    hash_ = table(-1);
    static_->initialize_static(executor_);
    for (Key first = 0; first < kRows; first += kInsertBatch) insert(*hash_, first);
    const std::size_t bytes = kBags * options.width * sizeof(float);
    gradient_memory_ = cpu::Memory(cpu::page_allocator(), bytes);
    output_memory_ = cpu::Memory(cpu::page_allocator(), bytes);
    gradient_ = static_cast<float*>(gradient_memory_.data());
    std::fill_n(gradient_, kBags * options.width, 0.01f);
  }

  void run(const std::string& ids) {
    std::vector<std::vector<Key>> batches;
    for (int i = 0; i < kBatches; ++i)
      batches.push_back(draw(ids, kBags * options_.hotness, 7 + i));
    for (auto [name, t] : {std::pair("static", static_.get()), std::pair("hash", hash_.get())}) {
      cpu::Table* table = t;
      const std::string of = ids + " " + name + " ";
      const auto lookup = [&](int i, bool insert) {
        // The batches stay as they are.
        must(cpu::lookup(executor_, {{table, bags(batches[i]), {{}, output_memory_.data()}, 0}},
                         insert, std::shared_ptr<const void>(&batches, [](const void*) {})));
      };
      time(of + "lookup", [&](int i) { lookup(i, false); });
      time(of + "lookup training", [&](int i) { lookup(i, true); });
      time(of + "merge and update", [&](int i) { update(*table, batches[i]); });
      time(of + "step", [&](int i) {
        lookup(i, true);
        update(*table, batches[i]);
      });
    }
  }

  void run_insert() {
    std::unique_ptr<cpu::Table> grown;
    time("insert 1 M rows, growing", [&](int) {
      grown = table(-1);
      for (Key first = 0; first < kNewRows; first += kInsertBatch) insert(*grown, first);
    });
  }

 private:
  std::unique_ptr<cpu::Table> table(std::int64_t rows) {
    sok::TableConfig config;
    config.name = "table";
    config.dimension = options_.width;
    config.rows = rows;
    config.initializer = {sok::InitKind::kUniform, -0.05f, 0.05f, 1};
    std::unique_ptr<cpu::Table> result;
    must(cpu::Table::create(config, cpu::page_allocator(), &result));
    return result;
  }

  void insert(cpu::Table& table, Key first) {
    std::vector<Key> keys(kInsertBatch);
    for (std::size_t i = 0; i < keys.size(); ++i)
      keys[i] = (first + static_cast<Key>(i)) * 7919 % kRows;
    must(table.reserve(executor_, {{keys.data(), kInsertBatch}}));
    std::vector<Row> rows(keys.size());
    executor_.parallel_for(kInsertBatch, 100, [&](std::int64_t begin, std::int64_t end) {
      table.find_or_insert_distinct(keys.data() + begin, end - begin, rows.data() + begin);
    });
    table.settle();
  }

  sok::Bags bags(const std::vector<Key>& ids) const {
    sok::Bags result;
    result.ids = ids.data();
    result.bags = kBags;
    result.hotness = options_.hotness;
    return result;
  }

  void update(cpu::Table& table, const std::vector<Key>& ids) {
    std::vector<cpu::MergeUpdate> updates(1);
    updates[0].table = &table;
    must(sok::find_optimizer("adagrad", &updates[0].optimizer));
    updates[0].hyper = {0.01f, 0.0f, 1e-7f, 0.1f, 0.0f};
    updates[0].features = {{bags(ids), {{}, gradient_}}};
    must(cpu::merge_update(executor_, updates, 1, 1.0f));
  }

  void time(const std::string& name, const std::function<void(int)>& body) {
    if (!options_.only.empty() && name.find(options_.only) == std::string::npos) return;
    double least = 1e30;
    for (int i = 0; i < options_.repeats; ++i) {
      const auto start = std::chrono::steady_clock::now();
      body(i % kBatches);
      const std::chrono::duration<double, std::milli> taken =
          std::chrono::steady_clock::now() - start;
      least = std::min(least, taken.count());
    }
    std::printf("%-34s %9.3f ms\n", name.c_str(), least);
  }

  Options options_;
  cpu::ThreadExecutor executor_;
  std::unique_ptr<cpu::Table> static_, hash_;
  cpu::Memory gradient_memory_, output_memory_;  // aligned, as TensorFlow's tensors are
  float* gradient_ = nullptr;
};

}  // namespace

int main(int count, char** arguments) {
  const Options options = parse(count, arguments);
  Bench bench(options);
  for (const char* ids : {"zipf", "uniform"}) {
    if (options.ids.empty() || options.ids == ids) bench.run(ids);
  }
  bench.run_insert();
  return 0;
}
