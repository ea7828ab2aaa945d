// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Find and insert at several widths and loads.
#ifndef SOK_BENCHMARKS_GPU_TIME_KEYS_H_
#define SOK_BENCHMARKS_GPU_TIME_KEYS_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "benchmarks/gpu/bench_context.h"

namespace sok::bench {

inline void run_keys(BenchContext& context, double copy) {
  constexpr std::int64_t kKeys = 1 << 20;
  for (const std::int64_t dim : {8, 32, 64, 128}) {
    constexpr std::int64_t kCapacity = 16 << 20;  // slots, about
    for (const double load : {0.5, 0.75, 0.875}) {
      auto table = make_table(context, dim, kCapacity * 7 / 8, false);
      const auto resident = static_cast<std::int64_t>(load * kCapacity);
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
      const auto resolve_ms = [&](bool insert) {
        return median_ms(context, [&](int i) {
          check(cuda::resolve(context, table.get(), sets[i % 8].as<Key>(), kKeys, insert,
                              rows.as<Row>()));
        });
      };
      report("find slot", resolve_ms(false), 8 + 4);
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
      report("find_or_insert, all there", resolve_ms(true), 8 + 4);
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

}  // namespace sok::bench

#endif  // SOK_BENCHMARKS_GPU_TIME_KEYS_H_
