// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The dot interaction, one kernel each way, a warp an example. What is not for the tensor cores
// (interaction_tensor.cuh):
//
//   forward    the example's vectors lie in shared memory, some columns at a time; each lane adds up
//              the products of 4 x 4 vectors in registers
//   backward   the gradients of pairs lie in shared memory as a symmetric matrix; each lane adds up a
//              few columns of all vectors' gradients in registers while the vectors pass by
//
// Up to 28 vectors of 128 columns are read once; of more, or of wider ones, some are read again.
#include <algorithm>
#include <cstdint>

#include "cuda/interaction_call.cuh"
#include "cuda/interaction_tensor.cuh"
#include "cuda/stages.h"
#include "cuda/vec.cuh"

namespace sok::cuda {
namespace {

// Without more than this a block needs no permission; four such blocks fill a Hopper's.
constexpr int kSharedBytes = 48 * 1024;
// Vectors of a group: a lane takes the products of two groups.
constexpr int kGroup = 4;

// ---- forward ----------------------------------------------------------------------------------

// A warp's shared memory: `chunk` columns of all vectors, `stride` floats apart, then the products.
struct Tiling {
  int groups = 0;  // vector v is number v / groups of group v % groups
  int chunk = 0, stride = 0;
  int floats = 0;
  int warps = 1;

  __host__ __device__ int tiles() const { return groups * (groups + 1) / 2; }
};

Tiling tiling_of(const Interaction& call) {
  constexpr int kVectorBytes = 14'912;
  Tiling t;
  t.groups = (call.count() + kGroup - 1) / kGroup;
  const int rows = t.groups * kGroup;
  const auto width = static_cast<int>(std::min<std::int64_t>((call.width + 3) / 4 * 4, 1024));
  t.chunk = std::clamp((kVectorBytes / (rows * 4) - 4) / 4 * 4, 4, std::max(width, 4));
  // An odd number of 16-byte words: eight neighbouring rows then lie in different banks.
  t.stride = (t.chunk / 4 | 1) * 4;
  t.floats = rows * t.stride + (pair_count(call.count()) + 3) / 4 * 4;
  t.warps = std::clamp(kSharedBytes / (t.floats * 4), 1, kInteractionWarps);
  return t;
}

// Columns [first, first + chunk) of all vectors, zeros past the width.
template <typename T, int V>
__device__ void stage_vectors(const InteractionArgs& call, const Tiling& t, std::int64_t example,
                              std::int64_t first, float* shared) {
  constexpr int kAhead = 8;
  const int lane = threadIdx.x % kWarp;
  for (int c = lane * V; c < t.chunk; c += kWarp * V) {
    for (int i = 0; i < call.count; i += kAhead) {
      Vec<V> v[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        v[u] = {};
        if (i + u < call.count && first + c < call.width) {
          v[u] = load_once<T, V>(call.vector<T>(i + u, example) + first + c);
        }
      }
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        if (i + u < call.count) store<float, V>(shared + (i + u) * t.stride + c, v[u]);
      }
    }
  }
}

// The groups of a tile, in the order (0, 0), (0, 1), ..., (1, 1), ...
__device__ void groups_of_tile(int tile, int groups, int* a, int* b) {
  *a = 0;
  while (tile >= groups - *a) tile -= groups - (*a)++;
  *b = *a + tile;
}

template <typename T, int V>
__global__ void __launch_bounds__(kInteractionWarps* kWarp)
    interaction_kernel(const __grid_constant__ InteractionArgs call, const Tiling t, T* out) {
  extern __shared__ __align__(16) float memory[];
  const int lane = threadIdx.x % kWarp;
  float* shared = memory + threadIdx.x / kWarp * t.floats;
  float* products = shared + t.groups * kGroup * t.stride;
  const bool at_once = t.chunk >= call.width;
  for (std::int64_t example = thread_index() / kWarp; example < call.batch;
       example += thread_count() / kWarp) {
    for (int base = 0; base < t.tiles(); base += kWarp) {
      float sums[kGroup][kGroup] = {};
      int a = 0, b = 0;
      const bool mine = base + lane < t.tiles();
      if (mine) groups_of_tile(base + lane, t.groups, &a, &b);
      for (std::int64_t first = 0; first < call.width; first += t.chunk) {
        if (!at_once || base == 0) {
          __syncwarp();
          stage_vectors<T, V>(call, t, example, first, shared);
          __syncwarp();
        }
        if (!mine) continue;
#pragma unroll 2
        for (int c = 0; c < t.chunk; c += 4) {
          Vec<4> left[kGroup], right[kGroup];
#pragma unroll
          for (int g = 0; g < kGroup; ++g) {
            left[g] = load<float, 4>(shared + (a + g * t.groups) * t.stride + c);
            right[g] = load<float, 4>(shared + (b + g * t.groups) * t.stride + c);
          }
#pragma unroll
          for (int x = 0; x < kGroup; ++x) {
#pragma unroll
            for (int y = 0; y < kGroup; ++y) {
#pragma unroll
              for (int k = 0; k < 4; ++k) sums[x][y] += left[x].x[k] * right[y].x[k];
            }
          }
        }
      }
      if (!mine) continue;
#pragma unroll
      for (int x = 0; x < kGroup; ++x) {
#pragma unroll
        for (int y = 0; y < kGroup; ++y) {
          const int i = a + x * t.groups, j = b + y * t.groups;
          if (i < call.count && j < call.count && (a != b || x < y)) {
            products[pair_place(i, j, call.count)] = sums[x][y];
          }
        }
      }
    }
    __syncwarp();
    call.write_row(example, products, out);
    __syncwarp();
  }
}

// ---- backward ---------------------------------------------------------------------------------

// What the gradients of vectors [first, first + R) are multiplied with: of_pairs[j][i - first] for
// vector j, 0 where i is j or there is no i.
template <typename T, int R>
__device__ void stage_pairs(const InteractionArgs& call, const T* of_products, int first,
                            float* of_pairs) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll 6
  for (int at = lane; at < call.count * R; at += kWarp) {
    const int j = at / R, i = first + at % R;
    of_pairs[at] =
        i == j || i >= call.count ? 0.0f : to_float(of_products[pair_place(i, j, call.count)]);
  }
}

template <typename T, int V, int R>
__global__ void __launch_bounds__(kInteractionWarps* kWarp, 3)
    interaction_gradients_kernel(const __grid_constant__ InteractionArgs call,
                                 const __grid_constant__ InteractionGradients gradients,
                                 const T* gradient) {
  extern __shared__ __align__(16) float memory[];
  const int lane = threadIdx.x % kWarp;
  float* of_pairs = memory + threadIdx.x / kWarp * call.count * R;
  for (std::int64_t example = thread_index() / kWarp; example < call.batch;
       example += thread_count() / kWarp) {
    const T* of_copies = gradient + example * call.columns;
    for (int first = 0; first < call.count; first += R) {
      __syncwarp();
      stage_pairs<T, R>(call, of_copies + call.copied(), first, of_pairs);
      __syncwarp();
      for (std::int64_t c = lane * V; c < call.width; c += kWarp * V) {
        Vec<V> sums[R] = {};
#pragma unroll 3
        for (int j = 0; j < call.count; ++j) {
          const Vec<V> v = load<T, V>(call.vector<T>(j, example) + c);
#pragma unroll
          for (int i = 0; i < R; i += 4) {
            const Vec<4> of_four = load<float, 4>(of_pairs + j * R + i);
#pragma unroll
            for (int u = 0; u < 4; ++u) {
#pragma unroll
              for (int k = 0; k < V; ++k) sums[i + u].x[k] += of_four.x[u] * v.x[k];
            }
          }
        }
#pragma unroll
        for (int i = 0; i < R; ++i) {
          if (first + i >= call.count) break;
          if (first + i < call.beside) {
            // Where a copy lies is aligned by chance only.
            for (int k = 0; k < V; ++k) {
              sums[i].x[k] += to_float(of_copies[(first + i) * call.width + c + k]);
            }
          }
          T* to = static_cast<T*>(gradients.of_vectors[first + i]) + example * call.width + c;
          store<T, V>(to, sums[i]);
        }
      }
    }
  }
}

// ---- launches ---------------------------------------------------------------------------------

std::int64_t blocks_of(std::int64_t batch, int warps) {
  return std::min((batch + warps - 1) / warps, kMostBlocks);
}

// Whether four columns at a time are one aligned access.
template <typename Pointer>
bool in_fours(const Interaction& call, const std::vector<Pointer>& pointers) {
  return in_pieces(call, pointers, 4 * row_type_bytes(call.type));
}

template <typename F>
Status with_columns(const Interaction& call, bool four, F&& f) {
  return with_row_type(call.type, [&](auto type) {
    return four ? f(type, std::integral_constant<int, 4>{})
                : f(type, std::integral_constant<int, 1>{});
  });
}

// Vectors whose gradients a lane adds up at a time: few registers for few vectors.
template <typename F>
Status with_rows(int count, F&& f) {
  if (count <= 8) return f(std::integral_constant<int, 8>{});
  if (count <= 28) return f(std::integral_constant<int, 28>{});
  return f(std::integral_constant<int, 32>{});
}

}  // namespace

Status dot_interaction(Context& context, const Interaction& call, void* products) {
  const InteractionArgs args(call);
  if (tensor::suits(call, call.vectors)) return tensor::launch(context, call, args, products);
  const Tiling tiling = tiling_of(call);
  return with_columns(call, in_fours(call, call.vectors), [&](auto type, auto v) {
    using T = decltype(type);
    return launch_blocks(context, "interaction", interaction_kernel<T, v()>,
                         blocks_of(call.batch, tiling.warps), tiling.warps * kWarp,
                         tiling.warps * tiling.floats * sizeof(float), args, tiling,
                         static_cast<T*>(products));
  });
}

Status dot_interaction_gradients(Context& context, const Interaction& call, const void* gradient,
                                 const std::vector<void*>& gradients) {
  const InteractionArgs args(call);
  const InteractionGradients to(gradients);
  if (tensor::suits_backward(call, gradients)) {
    return tensor::launch_gradients(context, call, args, to, gradient);
  }
  const bool four = in_fours(call, call.vectors) && in_fours(call, gradients);
  return with_columns(call, four, [&](auto type, auto v) {
    using T = decltype(type);
    return with_rows(call.count(), [&](auto r) {
      const int floats = call.count() * r();
      const int warps = std::clamp(kSharedBytes / (floats * static_cast<int>(sizeof(float))), 1,
                                   kInteractionWarps);
      return launch_blocks(context, "interaction_gradients",
                           interaction_gradients_kernel<T, v(), r()>, blocks_of(call.batch, warps),
                           warps * kWarp, warps * floats * sizeof(float), args, to,
                           static_cast<const T*>(gradient));
    });
  });
}

}  // namespace sok::cuda
