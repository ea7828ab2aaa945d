// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The products of vectors, forward and backward.
#ifndef SOK_BENCHMARKS_GPU_TIME_INTERACTION_H_
#define SOK_BENCHMARKS_GPU_TIME_INTERACTION_H_

#include <cstdint>
#include <cstdio>
#include <vector>

#include "benchmarks/gpu/bench_context.h"

namespace sok::bench {

// The interaction of a DLRM: 27 vectors of 128, batch 65,536.
inline void run_interaction(BenchContext& context, double copy) {
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

}  // namespace sok::bench

#endif  // SOK_BENCHMARKS_GPU_TIME_INTERACTION_H_
