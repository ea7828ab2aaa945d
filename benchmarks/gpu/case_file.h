// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Batches of ids, written by cases.py.
#ifndef SOK_BENCHMARKS_GPU_CASE_FILE_H_
#define SOK_BENCHMARKS_GPU_CASE_FILE_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "benchmarks/gpu/bench_context.h"

namespace sok::bench {

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

}  // namespace sok::bench

#endif  // SOK_BENCHMARKS_GPU_CASE_FILE_H_
