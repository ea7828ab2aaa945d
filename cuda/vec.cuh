// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// V consecutive columns of a row as floats, in one memory access where V is 4.
#ifndef SOK_CUDA_VEC_CUH_
#define SOK_CUDA_VEC_CUH_

#include <cstdint>

#include "cc_ops/core/types.h"

namespace sok::cuda {

template <int V>
struct Vec {
  float x[V];
};

template <typename T, int V>
__device__ __forceinline__ Vec<V> load(const T* p) {
  Vec<V> v;
  if constexpr (V == 1) {
    v.x[0] = to_float(*p);
  } else if constexpr (sizeof(T) == 4) {
    const float4 f = *reinterpret_cast<const float4*>(p);
    v.x[0] = f.x;
    v.x[1] = f.y;
    v.x[2] = f.z;
    v.x[3] = f.w;
  } else {
    const uint2 u = *reinterpret_cast<const uint2*>(p);
    v.x[0] = to_float(T{static_cast<std::uint16_t>(u.x)});
    v.x[1] = to_float(T{static_cast<std::uint16_t>(u.x >> 16)});
    v.x[2] = to_float(T{static_cast<std::uint16_t>(u.y)});
    v.x[3] = to_float(T{static_cast<std::uint16_t>(u.y >> 16)});
  }
  return v;
}

// A load of a row that this kernel reads once: it need not stay in the L1.
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

template <typename T, int V>
__device__ __forceinline__ void store(T* p, const Vec<V>& v) {
  if constexpr (V == 1) {
    *p = from_float<T>(v.x[0]);
  } else if constexpr (sizeof(T) == 4) {
    *reinterpret_cast<float4*>(p) = {v.x[0], v.x[1], v.x[2], v.x[3]};
  } else {
    const auto bits = [&](int i) { return static_cast<unsigned>(from_float<T>(v.x[i]).bits); };
    *reinterpret_cast<uint2*>(p) = {bits(0) | bits(1) << 16, bits(2) | bits(3) << 16};
  }
}

// A store of results that this kernel does not read again: they need not stay in the cache.
template <typename T, int V>
__device__ __forceinline__ void store_streaming(T* p, const Vec<V>& v) {
  if constexpr (V == 4 && sizeof(T) == 4) {
    __stcs(reinterpret_cast<float4*>(p), float4{v.x[0], v.x[1], v.x[2], v.x[3]});
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
    lane = in_warp & (lanes - 1);
    number = in_warp / lanes;
    tiles = 32 / lanes;
    mask = lanes == 32 ? 0xffffffffu : ((1u << lanes) - 1) << (number * lanes);
  }
  template <typename X>
  __device__ X shfl(X value, int from) const {
    return __shfl_sync(mask, value, from, lanes);
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
