// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Whether gradients are finite, each question in one kernel.
#include "cuda/features.cuh"
#include "cuda/launch.cuh"
#include "cuda/stages.h"
#include "cuda/tuning.h"
#include "cuda/vec.cuh"

namespace sok::cuda {
namespace {

// Values in pieces of 16 bytes, one access each where they are aligned.
struct Span {
  Values values;
  std::int64_t first = 0;  // of its pieces, counting all of the launch
};

template <typename Where>
struct SpanLaunch {
  std::int32_t count = 0;
  std::int64_t pieces = 0;
  typename Where::template List<Span> spans;
};

constexpr std::int64_t kPieceBytes = 16;

template <typename T>
__device__ bool piece_is_finite(const Values& values, std::int64_t piece) {
  constexpr int kElements = kPieceBytes / sizeof(T);
  const T* data = static_cast<const T*>(values.data);
  const std::int64_t begin = piece * kElements;
  bool finite = true;
  if (begin + kElements <= values.count &&
      reinterpret_cast<std::uintptr_t>(data) % kPieceBytes == 0) {
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

template <typename Where>
__global__ void __launch_bounds__(tuning::kBlock)
    all_finite_kernel(const __grid_constant__ SpanLaunch<Where> launch, bool* finite) {
  int span = 0;
  for (std::int64_t p = thread_index(); p < launch.pieces; p += thread_count()) {
    // A thread's pieces are in order: the span of the last one often is that of the next.
    if (span + 1 < launch.count && launch.spans.items[span + 1].first <= p) {
      span = find_item(launch.spans, launch.count, &Span::first, p);
    }
    const Values& values = launch.spans.items[span].values;
    const std::int64_t piece = p - launch.spans.items[span].first;
    const bool here = values.type == RowType::kFloat32   ? piece_is_finite<float>(values, piece)
                      : values.type == RowType::kFloat16 ? piece_is_finite<Half>(values, piece)
                                                         : piece_is_finite<BFloat16>(values, piece);
    if (!here) *finite = false;
  }
}

// Of a bag whose gradient reaches no row, or that is not there: its gradient is not read. More than
// every finite_bound().
constexpr float kUnbounded = 3.4028235e38f;

// Bags of a tile: their gradients travel at once.
constexpr int kBagsTogether = 8;

template <typename T, int V>
__device__ bool bags_are_finite(const FeatureArgs& feature, const Tile& tile, std::int64_t first,
                                std::int64_t ids) {
  const Bags& bags = feature.bags;
  // Without splits and weights all bags are alike, if there are ids for all.
  const bool alike = bags.row_splits == nullptr && bags.weights == nullptr &&
                     (bags.known_count < 0 || bags.begin(bags.bags) <= bags.known_count);
  float bounds[kBagsTogether];
#pragma unroll
  for (int u = 0; u < kBagsTogether; ++u) {
    const std::int64_t bag = first + u * tile.tiles;
    if (bag >= bags.bags) {
      bounds[u] = kUnbounded;
    } else if (alike && u > 0) {
      bounds[u] = bounds[0];
    } else {
      bounds[u] = bags.largest_coefficient(bag) == 0.0f ? kUnbounded : finite_bound(bags, bag, ids);
    }
  }
  const T* gradients = static_cast<const T*>(feature.columns.data);
  bool finite = true;
  for (std::int64_t c = tile.lane * V; c < feature.width; c += tile.lanes * V) {
    Vec<V> g[kBagsTogether];
#pragma unroll
    for (int u = 0; u < kBagsTogether; ++u) {
      g[u] = {};
      if (bounds[u] != kUnbounded) {
        g[u] = load<T, V>(gradients + (first + u * tile.tiles) * feature.width + c);
      }
    }
#pragma unroll
    for (int u = 0; u < kBagsTogether; ++u) {
      for (int i = 0; i < V; ++i) finite = finite && fabsf(g[u].x[i]) <= bounds[u];
    }
  }
  return finite;
}

// A tile some bags.
template <typename Where>
__global__ void __launch_bounds__(tuning::kBlock)
    bags_finite_kernel(const __grid_constant__ FeatureLaunch<Where> args, std::int64_t ids,
                       bool* finite) {
  const std::int64_t warps = thread_count() / 32;
  for (std::int64_t unit = thread_index() / 32; unit < args.units; unit += warps) {
    const FeatureArgs& feature = args.find(&FeatureArgs::first_unit, unit);
    const Tile tile(feature.lanes);
    const std::int64_t first =
        (unit - feature.first_unit) * tile.tiles * kBagsTogether + tile.number;
    const auto look = [&](auto type) {
      using T = decltype(type);
      return feature.width % 4 == 0 ? bags_are_finite<T, 4>(feature, tile, first, ids)
                                    : bags_are_finite<T, 1>(feature, tile, first, ids);
    };
    const RowType type = feature.columns.type;
    const bool here = type == RowType::kFloat32   ? look(float{})
                      : type == RowType::kFloat16 ? look(Half{})
                                                  : look(BFloat16{});
    if (!here) *finite = false;
  }
}

}  // namespace

Status all_finite(Context& context, const std::vector<Values>& values, bool* finite) {
  SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(finite, true, sizeof(bool), stream_of(context)));
  Descriptors<Span> spans;
  std::int64_t pieces = 0;
  for (const Values& each : values) {
    spans.items.push_back({each, pieces});
    const std::int64_t bytes = each.count * row_type_bytes(each.type);
    pieces += (bytes + kPieceBytes - 1) / kPieceBytes;
  }
  // Each thread looks at several pieces: a launch of millions of blocks would cost more.
  const std::int64_t threads = std::min(pieces, std::int64_t{tuning::kBusyWarps} * kWarp);
  if (!spans.fit_parameters()) SOK_RETURN_IF_ERROR(spans.upload(context));
  return with_place(spans.fit_parameters(), [&](auto where) {
    using Where = decltype(where);
    SpanLaunch<Where> args;
    args.count = static_cast<std::int32_t>(spans.items.size());
    args.pieces = pieces;
    args.spans = spans.list<Where>();
    return launch(context, "all_finite", all_finite_kernel<Where>, threads, tuning::kBlock, args,
                  finite);
  });
}

Status bags_finite(Context& context, const std::vector<BagGradients>& gradients, bool* finite) {
  SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(finite, true, sizeof(bool), stream_of(context)));
  Features features;
  std::int64_t ids = 0;
  for (const BagGradients& each : gradients) {
    ids += each.bags.ids_count();
    FeatureArgs args;
    args.width = each.width;
    args.bags = each.bags;
    args.columns = each.gradient;
    args.lanes = lanes_for(each.width, each.width % 4 == 0 ? 4 : 1);
    args.bags_per_tile = kBagsTogether;
    if (each.bags.bags > 0) features.add(args);
  }
  SOK_RETURN_IF_ERROR(features.prepare(context));
  return features.launch([&](auto where, const auto& args) {
    return launch(context, "bags_finite", bags_finite_kernel<decltype(where)>, args.units * kWarp,
                  tuning::kBlock, args, ids, finite);
  });
}

}  // namespace sok::cuda
