// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The dot interaction of at most 32 vectors on the tensor cores (compute capability 8.0 and later):
// a warp an example, whose vectors are in registers. (Those that also stand beside the products are
// read again.)
//
// An instruction multiplies a matrix of 16 rows with one of 8 columns; what is summed over are 32
// bytes, 16 elements of 16 bits or 8 floats. Which words of them a lane holds is fixed, but the
// order of what is summed over, and that of the result's columns, is ours: they are chosen such
// that what a lane holds is 16 bytes of a vector.
#ifndef SOK_CUDA_INTERACTION_TENSOR_CUH_
#define SOK_CUDA_INTERACTION_TENSOR_CUH_

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "cuda/interaction_call.cuh"
#include "cuda/tuning.h"

namespace sok::cuda::tensor {

constexpr int kMost = 32;  // vectors
constexpr std::size_t kPieceBytes = 16;
template <typename T>
constexpr int kPiece = kPieceBytes / sizeof(T);  // columns of it
constexpr int kMostPairs = kMost * (kMost - 1) / 2;

// sums += a b. Of a, row g = lane / 4 and its word q = lane % 4 are in a[0], of row g + 8 in a[1],
// the words 4 later in a[2] and a[3]; of b, column g and word q are in b[0], the word 4 later in
// b[1]; of the sums, row g and the columns 2 q, 2 q + 1 come first, then row g + 8.
#define SOK_MULTIPLY_ADD(shape, sums, a, b)                                       \
  asm volatile("mma.sync.aligned." shape                                          \
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// What the instruction gets of one matrix: N words a lane.
template <typename T, int N>
struct Operand {
  unsigned words[N];

  __device__ __forceinline__ explicit Operand(const unsigned (&from)[N]) {
#pragma unroll
    for (int k = 0; k < N; ++k) words[k] = from[k];
  }
};

// A float goes in two parts. The instruction sees the upper 19 bits of a word: all of the first part,
// the number of so many bits that is nearest, and all but the last bits of the rest. (Next to the
// largest float the nearest one is infinite, and products are no numbers.)
template <int N>
struct Operand<float, N> {
  unsigned words[N], rests[N];

  __device__ __forceinline__ explicit Operand(const unsigned (&from)[N]) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      words[k] = (from[k] + 0x1000u) & 0xffffe000u;
      const float all = __uint_as_float(from[k]), seen = __uint_as_float(words[k]);
      rests[k] = all == seen ? 0 : __float_as_uint(all - seen);  // infinities are equal
    }
  }
};

template <typename T>
__device__ __forceinline__ void multiply_add(float (&sums)[4], const Operand<T, 4>& a,
                                             const Operand<T, 2>& b) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, Half>) {
    SOK_MULTIPLY_ADD("m16n8k16.row.col.f32.f16.f16.f32", sums, a.words, b.words);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    SOK_MULTIPLY_ADD("m16n8k16.row.col.f32.bf16.bf16.f32", sums, a.words, b.words);
  } else {
    // Without the product of the two rests, and without the last bits of each, a product is wrong by
    // 5 / 2^22 at most; float arithmetic would round it by 1 / 2^24.
    SOK_MULTIPLY_ADD("m16n8k8.row.col.f32.tf32.tf32.f32", sums, a.rests, b.words);
    SOK_MULTIPLY_ADD("m16n8k8.row.col.f32.tf32.tf32.f32", sums, a.words, b.rests);
    SOK_MULTIPLY_ADD("m16n8k8.row.col.f32.tf32.tf32.f32", sums, a.words, b.words);
  }
#endif
}
#undef SOK_MULTIPLY_ADD

// Sixteen bytes of a vector, zeros where there are none.
struct Piece {
  unsigned words[4] = {};

  __device__ __forceinline__ explicit Piece(const void* from = nullptr) {
    if (from == nullptr) return;
    const uint4 read = *static_cast<const uint4*>(from);
    words[0] = read.x, words[1] = read.y, words[2] = read.z, words[3] = read.w;
  }
};

// ---- forward ----------------------------------------------------------------------------------
//
// Both matrices are vectors, so one piece serves as either: of each eight vectors lane (g, q) holds
// piece q of vector g, which is two steps of the sum. kHalves: of 16 vectors each.

template <typename T, int kHalves>
__global__ void __launch_bounds__(kInteractionWarps* kWarp, 3)
    interaction_kernel(const __grid_constant__ InteractionArgs call, T* out) {
  constexpr int kEights = 2 * kHalves, kAhead = 4;
  __shared__ T products_of_warps[kInteractionWarps][kMostPairs];
  T* products = products_of_warps[threadIdx.x / kWarp];
  const int g = threadIdx.x % kWarp / 4, q = threadIdx.x % 4;
  const T* vectors[kEights];
#pragma unroll
  for (int e = 0; e < kEights; ++e) {
    const int i = 8 * e + g;
    vectors[e] = i < call.count ? call.vector<T>(i, 0) : nullptr;
  }
  for (std::int64_t example = thread_index() / kWarp; example < call.batch;
       example += thread_count() / kWarp) {
    float sums[kHalves][kEights][4] = {};
    for (std::int64_t first = 0; first < call.width; first += kAhead * 4 * kPiece<T>) {
      Piece pieces[kAhead][kEights];
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
#pragma unroll
        for (int e = 0; e < kEights; ++e) {
          const std::int64_t column = first + (4 * s + q) * kPiece<T>;
          const bool here = vectors[e] != nullptr && column < call.width;
          pieces[s][e] = Piece(here ? vectors[e] + example * call.width + column : nullptr);
        }
      }
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
#pragma unroll
        for (int w = 0; w < 4; w += 2) {
#pragma unroll
          for (int h = 0; h < kHalves; ++h) {
            const Piece &low = pieces[s][2 * h], &high = pieces[s][2 * h + 1];
            const Operand<T, 4> a(
                {low.words[w], high.words[w], low.words[w + 1], high.words[w + 1]});
            // Pairs of a later half with an earlier one are known already.
#pragma unroll
            for (int e = 2 * h; e < kEights; ++e) {
              const Operand<T, 2> b({pieces[s][e].words[w], pieces[s][e].words[w + 1]});
              multiply_add<T>(sums[h][e], a, b);
            }
          }
        }
      }
    }
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
#pragma unroll
      for (int e = 2 * h; e < kEights; ++e) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i = 16 * h + k / 2 * 8 + g, j = 8 * e + 2 * q + k % 2;
          if (i < j && j < call.count) {
            products[pair_place(i, j, call.count)] = from_float<T>(sums[h][e][k]);
          }
        }
      }
    }
    __syncwarp();
    call.write_row(example, products, out);
    __syncwarp();
  }
}

// ---- backward, in 16 bits ---------------------------------------------------------------------
//
// (In float32 the splitting of numbers and three products take longer than plain arithmetic.)
//
// (gradients of pairs, a symmetric matrix in shared memory) x (vectors). Lane (g, q) holds eight
// columns of the vectors that its rows of the second matrix are: number t of them is the lane's
// column of the t-th product, and the sums of eight products are eight neighbouring columns of a
// gradient.

// Elements of a row of the matrix, such that eight rows' words lie in different banks.
constexpr int kStride = kMost + 8;

template <typename T, int kHalves>
__global__ void __launch_bounds__(kInteractionWarps* kWarp, 4)
    interaction_gradients_kernel(const __grid_constant__ InteractionArgs call,
                                 const __grid_constant__ InteractionGradients gradients,
                                 const T* gradient) {
  constexpr int kSlots = 4 * kHalves, kColumns = 8 * kPiece<T>;
  __shared__ std::uint16_t places[kMostPairs];
  __shared__ __align__(4) std::uint16_t matrices[kInteractionWarps][kMost * kStride];
  std::uint16_t* of_pairs = matrices[threadIdx.x / kWarp];
  for (int i = threadIdx.x; i < call.count; i += blockDim.x) {
    for (int j = i + 1; j < call.count; ++j) {
      places[pair_place(i, j, call.count)] = static_cast<std::uint16_t>(i << 8 | j);
    }
  }
  // No pair: stays zero.
  for (int at = threadIdx.x; at < kInteractionWarps * kMost * kStride; at += blockDim.x) {
    matrices[0][at] = 0;
  }
  __syncthreads();
  const int lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
  const auto vector_of = [&](int slot) {
    return slot / 4 * 16 + slot % 4 / 2 * 8 + 2 * q + slot % 2;
  };
  const T* vectors[kSlots];
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    vectors[s] = vector_of(s) < call.count ? call.vector<T>(vector_of(s), 0) : nullptr;
  }
  // Of the sums a lane gets products 2 q and 2 q + 1: these come from blocks q and q + 4, so that
  // four lanes write 64 bytes that lie together.
  const int block = g % 2 * 4 + g / 2;
  for (std::int64_t example = thread_index() / kWarp; example < call.batch;
       example += thread_count() / kWarp) {
    const std::int64_t row = example * call.width;
    Piece pieces[kSlots];
    const auto load = [&](std::int64_t first) {
      const std::int64_t column = first + block * kPiece<T>;
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const bool here = vectors[s] != nullptr && column < call.width;
        pieces[s] = Piece(here ? vectors[s] + row + column : nullptr);
      }
    };
    load(0);
    const T* of_copies = gradient + example * call.columns;
    __syncwarp();
    for (int p = lane; p < pair_count(call.count); p += kWarp) {
      const int i = places[p] >> 8, j = places[p] & 0xff;
      of_pairs[i * kStride + j] = of_pairs[j * kStride + i] = of_copies[call.copied() + p].bits;
    }
    __syncwarp();
    for (std::int64_t first = 0; first < call.width; first += kColumns) {
      if (first > 0) load(first);
      // A half at a time: registers for the sums of both would leave room for fewer warps.
#pragma unroll 1
      for (int h = 0; h < kHalves; ++h) {
        unsigned a[kHalves][4];
#pragma unroll
        for (int step = 0; step < kHalves; ++step) {
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const int i = 16 * h + k % 2 * 8 + g, j = 16 * step + k / 2 * 8 + 2 * q;
            a[step][k] = *reinterpret_cast<const unsigned*>(of_pairs + i * kStride + j);
          }
        }
        float sums[kPiece<T>][4] = {};
#pragma unroll
        for (int t = 0; t < kPiece<T>; ++t) {
          const auto both = [&](int slot) {
            return __byte_perm(pieces[slot].words[t / 2], pieces[slot + 1].words[t / 2],
                               t % 2 == 0 ? 0x5410 : 0x7632);
          };
#pragma unroll
          for (int step = 0; step < kHalves; ++step) {
            const Operand<T, 2> b({both(4 * step), both(4 * step + 2)});
            multiply_add<T>(sums[t], Operand<T, 4>(a[step]), b);
          }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int i = 16 * h + 8 * r + g;
          if (i >= call.count) continue;
          T* to = static_cast<T*>(gradients.of_vectors[i]) + row;
#pragma unroll
          for (int side = 0; side < 2; ++side) {
            const std::int64_t column = first + (4 * side + q) * kPiece<T>;
            if (column >= call.width) continue;
            unsigned out[kPiece<T> / 2];
#pragma unroll
            for (int t = 0; t < kPiece<T>; t += 2) {
              float low = sums[t][2 * r + side], high = sums[t + 1][2 * r + side];
              if (i < call.beside) {
                const T* of_copy = of_copies + i * call.width + column + t;
                low += to_float(of_copy[0]);
                high += to_float(of_copy[1]);
              }
              out[t / 2] = from_float<T>(low).bits | static_cast<unsigned>(from_float<T>(high).bits)
                                                         << 16;
            }
            *reinterpret_cast<uint4*>(to + column) = {out[0], out[1], out[2], out[3]};
          }
        }
      }
    }
  }
}

// ---- launches ---------------------------------------------------------------------------------

template <typename Pointer>
bool suits(const Interaction& call, const std::vector<Pointer>& pointers) {
  return call.count() <= kMost && in_pieces(call, pointers, kPieceBytes);
}

inline bool suits_backward(const Interaction& call, const std::vector<void*>& gradients) {
  return row_type_bytes(call.type) == 2 && suits(call, call.vectors) && suits(call, gradients);
}

// Calls f(type, halves).
template <typename F>
Status with_halves(const Interaction& call, F&& f) {
  return with_row_type(call.type, [&](auto type) {
    return call.count() <= 16 ? f(type, std::integral_constant<int, 1>{})
                              : f(type, std::integral_constant<int, 2>{});
  });
}

// Enough to keep the device busy: each warp strides over examples. Where a block first prepares
// tables, fewer do it.
inline std::int64_t blocks_that_stride(std::int64_t batch, int share) {
  return std::min<std::int64_t>((batch + kInteractionWarps - 1) / kInteractionWarps,
                                tuning::kBusyWarps / kInteractionWarps / share);
}

inline Status launch(Context& context, const Interaction& call, const InteractionArgs& args,
                     void* products) {
  return with_halves(call, [&](auto type, auto halves) {
    using T = decltype(type);
    return launch_blocks(context, "interaction", interaction_kernel<T, halves()>,
                         blocks_that_stride(call.batch, 1), kInteractionWarps * kWarp, 0, args,
                         static_cast<T*>(products));
  });
}

inline Status launch_gradients(Context& context, const Interaction& call,
                               const InteractionArgs& args, const InteractionGradients& gradients,
                               const void* gradient) {
  return with_halves(call, [&](auto type, auto halves) -> Status {
    using T = decltype(type);
    if constexpr (sizeof(T) == 2) {
      return launch_blocks(context, "interaction_gradients",
                           interaction_gradients_kernel<T, halves()>,
                           blocks_that_stride(call.batch, 4), kInteractionWarps * kWarp, 0, args,
                           gradients, static_cast<const T*>(gradient));
    }
    return {};  // suits_backward() says no
  });
}

}  // namespace sok::cuda::tensor

#endif  // SOK_CUDA_INTERACTION_TENSOR_CUH_
