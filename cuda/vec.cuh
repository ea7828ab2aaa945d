// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// V consecutive columns of a row as floats: 1, or as many as 16 bytes hold of a type; 4 also of 16-bit
// types. One memory access, or two where 8 floats are written.
#ifndef SOK_CUDA_VEC_CUH_
#define SOK_CUDA_VEC_CUH_

#include <cstdint>
#include <type_traits>

#include "cc_ops/core/types.h"
#include "cuda/launch.cuh"

namespace sok::cuda {

template <int V>
struct Vec {
  float x[V];
};

// Two 16-bit values of a word.
template <typename T>
__device__ __forceinline__ void unpack(std::uint32_t word, float* x) {
  x[0] = to_float(T{static_cast<std::uint16_t>(word)});
  x[1] = to_float(T{static_cast<std::uint16_t>(word >> 16)});
}
template <typename T>
__device__ __forceinline__ std::uint32_t pack(const float* x) {
  return from_float<T>(x[0]).bits | static_cast<std::uint32_t>(from_float<T>(x[1]).bits) << 16;
}

template <typename T, int V>
__device__ __forceinline__ Vec<V> load(const T* p) {
  Vec<V> v;
  if constexpr (V == 1) {
    v.x[0] = to_float(*p);
  } else if constexpr (sizeof(T) == 4) {
    static_assert(V == 4);
    const float4 f = *reinterpret_cast<const float4*>(p);
    v.x[0] = f.x;
    v.x[1] = f.y;
    v.x[2] = f.z;
    v.x[3] = f.w;
  } else if constexpr (V == 4) {
    const uint2 u = *reinterpret_cast<const uint2*>(p);
    unpack<T>(u.x, v.x);
    unpack<T>(u.y, v.x + 2);
  } else {
    const uint4 u = *reinterpret_cast<const uint4*>(p);
    unpack<T>(u.x, v.x);
    unpack<T>(u.y, v.x + 2);
    unpack<T>(u.z, v.x + 4);
    unpack<T>(u.w, v.x + 6);
  }
  return v;
}

// A load of what this kernel reads once: it need not stay in the L1.
template <typename T, int V>
__device__ __forceinline__ Vec<V> load_once(const T* p) {
  if constexpr (V == 4 && sizeof(T) == 4) {
    Vec<V> v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x[0]), "=f"(v.x[1]), "=f"(v.x[2]), "=f"(v.x[3])
                 : "l"(p));
    return v;
  } else {
    return load<T, V>(p);
  }
}

// V values of type T on their way from a row that nobody changes: what the load leaves in registers
// until they are needed as floats. 16-bit values take half the space so.
template <typename T, int V>
struct Raw {
  using Word = std::conditional_t<V == 1, T, std::uint32_t>;
  Word words[V == 1 ? 1 : V * sizeof(T) / 4];

  // If they are not `wanted`, nothing is read, and the values are 0; no branch stands between
  // several loads. Lines stay in the L1: other bags may have the same id.
  __device__ __forceinline__ void load(const T* p, bool wanted) {
    if constexpr (V == 1 && sizeof(T) == 4) {
      asm volatile(
          "{\n .reg .pred p;\n setp.ne.b32 p, %2, 0;\n mov.b32 %0, 0;\n"
          " @p ld.global.nc.L2::128B.b32 %0, [%1];\n}"
          : "=&f"(words[0])
          : "l"(p), "r"(static_cast<int>(wanted)));
    } else if constexpr (V == 1) {
      asm volatile(
          "{\n .reg .pred p;\n setp.ne.b32 p, %2, 0;\n mov.b16 %0, 0;\n"
          " @p ld.global.nc.L2::128B.b16 %0, [%1];\n}"
          : "=&h"(words[0].bits)
          : "l"(p), "r"(static_cast<int>(wanted)));
    } else if constexpr (sizeof(words) == 16) {
      asm volatile(
          "{\n .reg .pred p;\n setp.ne.b32 p, %5, 0;\n"
          " mov.b32 %0, 0;\n mov.b32 %1, 0;\n mov.b32 %2, 0;\n mov.b32 %3, 0;\n"
          " @p ld.global.nc.L2::128B.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
          : "=&r"(words[0]), "=&r"(words[1]), "=&r"(words[2]), "=&r"(words[3])
          : "l"(p), "r"(static_cast<int>(wanted)));
    } else {
      static_assert(sizeof(words) == 8);
      asm volatile(
          "{\n .reg .pred p;\n setp.ne.b32 p, %3, 0;\n"
          " mov.b32 %0, 0;\n mov.b32 %1, 0;\n"
          " @p ld.global.nc.L2::128B.v2.b32 {%0, %1}, [%2];\n}"
          : "=&r"(words[0]), "=&r"(words[1])
          : "l"(p), "r"(static_cast<int>(wanted)));
    }
  }
  __device__ __forceinline__ Vec<V> floats() const {
    Vec<V> v;
    if constexpr (V == 1) {
      v.x[0] = to_float(words[0]);
    } else if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < V; ++i) v.x[i] = __uint_as_float(words[i]);
    } else {
#pragma unroll
      for (int i = 0; i < V; i += 2) unpack<T>(words[i / 2], v.x + i);
    }
    return v;
  }
};

template <typename T, int V>
__device__ __forceinline__ void store(T* p, const Vec<V>& v) {
  if constexpr (V == 1) {
    *p = from_float<T>(v.x[0]);
  } else if constexpr (sizeof(T) == 4) {
    static_assert(V == 4);
    *reinterpret_cast<float4*>(p) = {v.x[0], v.x[1], v.x[2], v.x[3]};
  } else if constexpr (V == 4) {
    *reinterpret_cast<uint2*>(p) = {pack<T>(v.x), pack<T>(v.x + 2)};
  } else {
    *reinterpret_cast<uint4*>(p) = {pack<T>(v.x), pack<T>(v.x + 2), pack<T>(v.x + 4),
                                    pack<T>(v.x + 6)};
  }
}

// A store of results that this kernel does not read again: they need not stay in the cache.
template <typename T, int V>
__device__ __forceinline__ void store_streaming(T* p, const Vec<V>& v) {
  if constexpr (V > 1 && sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      __stcs(reinterpret_cast<float4*>(p + i), float4{v.x[i], v.x[i + 1], v.x[i + 2], v.x[i + 3]});
    }
  } else {
    store<T, V>(p, v);
  }
}

// The same for a type known only at run time; `at` counts elements.
template <int V>
__device__ __forceinline__ void store_as(RowType type, void* p, std::int64_t at, const Vec<V>& v) {
  if (type == RowType::kFloat32) {
    store_streaming<float, V>(static_cast<float*>(p) + at, v);
  } else if (type == RowType::kFloat16) {
    store<Half, V>(static_cast<Half*>(p) + at, v);
  } else {
    store<BFloat16, V>(static_cast<BFloat16*>(p) + at, v);
  }
}

template <int V>
__device__ __forceinline__ Vec<V> load_as(RowType type, const void* p, std::int64_t at) {
  if (type == RowType::kFloat32) return load<float, V>(static_cast<const float*>(p) + at);
  if (type == RowType::kFloat16) return load<Half, V>(static_cast<const Half*>(p) + at);
  return load<BFloat16, V>(static_cast<const BFloat16*>(p) + at);
}

// Lanes of a tile for rows of `width` columns, v of them a lane at a time.
__host__ __device__ inline int lanes_for(std::int64_t width, int v) {
  int lanes = 1;
  while (lanes < 32 && lanes * v < width) lanes *= 2;
  return lanes;
}

// A group of `lanes` (a power of two) consecutive lanes of a warp that work on one row.
struct Tile {
  int lanes;
  int lane;       // within the tile
  int tiles;      // in a warp
  int number;     // of this tile in its warp
  unsigned mask;  // its lanes in the warp

  __device__ explicit Tile(int lanes_) : lanes(lanes_) {
    const int in_warp = threadIdx.x & 31;
    const int bits = __popc(lanes - 1);  // not a division, which is a call
    lane = in_warp & (lanes - 1);
    number = in_warp >> bits;
    tiles = 32 >> bits;
    mask = lanes == 32 ? 0xffffffffu : ((1u << lanes) - 1) << (number * lanes);
  }
  template <typename X>
  __device__ X shfl(X value, int from) const {
    return __shfl_sync(mask, value, from, lanes);
  }
  // The same where all tiles of the warp exchange values together: then nobody has to find out which
  // lanes are there.
  template <typename X>
  __device__ X shfl_in_step(X value, int from) const {
    return __shfl_sync(kFullMask, value, from, lanes);
  }
  __device__ float sum(float value) const {
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
      value += __shfl_xor_sync(mask, value, offset, lanes);
    }
    return value;
  }
};

}  // namespace sok::cuda

#endif  // SOK_CUDA_VEC_CUH_
