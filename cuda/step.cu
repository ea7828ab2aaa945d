// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// What a training step needs beside merging and updating, each in one kernel.
#include "cuda/launch.cuh"
#include "cuda/stages.h"
#include "cuda/tuning.h"

namespace sok::cuda {
namespace {

__global__ void hyper_parameters_kernel(const __grid_constant__ HyperParameters parameters, float* out) {
  const auto i = static_cast<int>(threadIdx.x);
  if (i < parameters.count) out[i] = parameters[i];
}

// Values in pieces of 16 bytes; what lies before and after the aligned ones is looked at singly.
struct Span {
  Values values;
  std::int64_t first = 0;  // of its pieces, counting all of the launch
};

struct SpanLaunch {
  std::int32_t count = 0;
  std::int64_t pieces = 0;
  Span spans[tuning::kFeaturesALaunch];
};

constexpr std::int64_t kPieceBytes = 16;

template <typename T>
__device__ bool piece_is_finite(const Values& values, std::int64_t piece) {
  constexpr int kElements = kPieceBytes / sizeof(T);
  const T* data = static_cast<const T*>(values.data);
  const std::int64_t begin = piece * kElements;
  bool finite = true;
  if (begin + kElements <= values.count && reinterpret_cast<std::uintptr_t>(data) % kPieceBytes == 0) {
    union {
      uint4 words;
      T elements[kElements];
    } read;
    read.words = *reinterpret_cast<const uint4*>(data + begin);
#pragma unroll
    for (int i = 0; i < kElements; ++i) finite = finite && is_finite(read.elements[i]);
    return finite;
  }
  for (std::int64_t i = begin; i < values.count && i < begin + kElements; ++i) {
    finite = finite && is_finite(data[i]);
  }
  return finite;
}

__global__ void __launch_bounds__(tuning::kBlock)
    all_finite_kernel(const __grid_constant__ SpanLaunch launch, bool* finite) {
  int span = 0;
  for (std::int64_t p = thread_index(); p < launch.pieces; p += thread_count()) {
    while (span + 1 < launch.count && launch.spans[span + 1].first <= p) ++span;
    const Values& values = launch.spans[span].values;
    const std::int64_t piece = p - launch.spans[span].first;
    const bool here = values.type == RowType::kFloat32   ? piece_is_finite<float>(values, piece)
                      : values.type == RowType::kFloat16 ? piece_is_finite<Half>(values, piece)
                                                         : piece_is_finite<BFloat16>(values, piece);
    if (!here) *finite = false;
  }
}

}  // namespace

Status hyper_parameters(Context& context, const HyperParameters& parameters, float* out) {
  return launch(context, "hyper_parameters", hyper_parameters_kernel, parameters.count, kWarp,
                parameters, out);
}

Status all_finite(Context& context, const std::vector<Values>& values, bool* finite) {
  SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(finite, true, sizeof(bool), stream_of(context)));
  for (std::size_t begin = 0; begin < values.size(); begin += tuning::kFeaturesALaunch) {
    SpanLaunch args;
    const std::size_t end = std::min(values.size(), begin + tuning::kFeaturesALaunch);
    for (std::size_t i = begin; i < end; ++i) {
      args.spans[args.count++] = {values[i], args.pieces};
      const std::int64_t bytes = values[i].count * row_type_bytes(values[i].type);
      args.pieces += (bytes + kPieceBytes - 1) / kPieceBytes;
    }
    // Each thread looks at several pieces: a launch of millions of blocks would cost more.
    const std::int64_t threads = std::min(args.pieces, std::int64_t{tuning::kBusyWarps} * kWarp);
    SOK_RETURN_IF_ERROR(launch(context, "all_finite", all_finite_kernel, threads, tuning::kBlock,
                               args, finite));
  }
  return {};
}

}  // namespace sok::cuda
