// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Times the stages on a GPU without TensorFlow: what the kernels themselves take.
//
//   stages CASE_FILE NAME      CASE_FILE: batches of ids, written by cases.py
//   stages keys                find and insert at several widths and loads
//   stages interaction         the dot products of a DLRM
//
// Prints one JSON object a line. Times are medians of event intervals over back-to-back calls,
// which rotate through all batches of the file.
//
// It is built by hand, from the root of the repository, for the GPU at hand (here an H200) and with
// the library of a build folder that was configured with -DSOK_CUDA=on -DSOK_CUDA_ARCHS=90:
//
//   nvcc -std=c++17 -arch=sm_90 -O3 --expt-relaxed-constexpr --extended-lambda -I. \
//     benchmarks/gpu/stages.cu build/cuda/libsok_cuda.a -o stages
#include <cstdio>
#include <string>

#include "benchmarks/gpu/bench_context.h"
#include "benchmarks/gpu/time_case.h"
#include "benchmarks/gpu/time_interaction.h"
#include "benchmarks/gpu/time_keys.h"

int main(int argc, char** argv) {
  sok::bench::BenchContext context;
  const double copy = sok::bench::copy_gbs(context);
  std::printf("{\"copy_gbs\": %.1f}\n", copy);
  if (argc == 2 && std::string(argv[1]) == "keys") {
    sok::bench::run_keys(context, copy);
    return 0;
  }
  if (argc == 2 && std::string(argv[1]) == "interaction") {
    sok::bench::run_interaction(context, copy);
    return 0;
  }
  if (argc != 3) {
    std::fprintf(stderr, "usage: stages CASE_FILE NAME | stages keys | stages interaction\n");
    return 2;
  }
  sok::bench::run_case(context, argv[1], argv[2], copy);
  return 0;
}
