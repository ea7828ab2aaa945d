// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Forward passes and whole steps over the batches of a file.
#ifndef SOK_BENCHMARKS_GPU_TIME_CASE_H_
#define SOK_BENCHMARKS_GPU_TIME_CASE_H_

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu/bench_context.h"
#include "benchmarks/gpu/case_file.h"

namespace sok::bench {

inline void run_case(BenchContext& context, const char* path, const std::string& name,
                     double copy) {
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

}  // namespace sok::bench

#endif  // SOK_BENCHMARKS_GPU_TIME_CASE_H_
