// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The one list of element types of a table's rows, and their conversions to and from float.
// Keys have one width inside the library: 64 bits. Narrower and unsigned ids are widened where they
// enter (sok/inputs.py), which costs one pass over the ids and saves a second copy of every kernel.
#ifndef SOK_CORE_TYPES_H_
#define SOK_CORE_TYPES_H_

#include <cstdint>
#include <cstring>

#include "cc_ops/core/host_device.h"

namespace sok {

using Key = std::int64_t;

// A row's number: its address in every plane of a table. Never reused while the key lives.
using Row = std::uint32_t;
constexpr Row kNoRow = 0xffffffffu;

struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

enum class RowType : int { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2 };

// X(C++ type, RowType value, TensorFlow's type name)
#define SOK_FOR_EACH_ROW_TYPE(X) \
  X(float, kFloat32, float)      \
  X(Half, kFloat16, half)        \
  X(BFloat16, kBFloat16, bfloat16)

template <typename T>
struct RowTypeOf;
#define SOK_ROW_TYPE_OF(T, value, name)               \
  template <>                                         \
  struct RowTypeOf<T> {                               \
    static constexpr RowType kValue = RowType::value; \
  };
SOK_FOR_EACH_ROW_TYPE(SOK_ROW_TYPE_OF)
#undef SOK_ROW_TYPE_OF

// Calls f(T{}) with the C++ type of `type`: the one place where a run-time type becomes a
// template's.
template <typename F>
auto with_row_type(RowType type, F&& f) {
  switch (type) {
    case RowType::kFloat16:
      return f(Half{});
    case RowType::kBFloat16:
      return f(BFloat16{});
    default:
      return f(float{});
  }
}

inline int row_type_bytes(RowType type) { return type == RowType::kFloat32 ? 4 : 2; }

SOK_HD std::uint32_t float_bits(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}

SOK_HD float bits_float(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
#endif
}

SOK_HD float to_float(float x) { return x; }

SOK_HD float to_float(BFloat16 x) { return bits_float(static_cast<std::uint32_t>(x.bits) << 16); }

SOK_HD float to_float(Half x) {
#if defined(__CUDA_ARCH__)
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.bits));
  return f;
#else
  // TensorFlow's threads treat subnormal floats as zero, so none may arise on the way: a subnormal
  // half is its mantissa times 2^-24, and the others get their exponent rebiased.
  const std::uint32_t magnitude = x.bits & 0x7fffu;
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t exponent = x.bits & 0x7c00u;
  const std::uint32_t subnormal =
      float_bits(static_cast<float>(magnitude) * 5.9604644775390625e-8f);
  const std::uint32_t rebias = exponent == 0x7c00u ? 224u << 23 : 112u << 23;
  return bits_float((exponent == 0 ? subnormal : (magnitude << 13) + rebias) | sign);
#endif
}

// Neither infinite nor NaN: not all bits of the exponent are set.
SOK_HD bool is_finite(float x) { return (float_bits(x) & 0x7f800000u) != 0x7f800000u; }
SOK_HD bool is_finite(BFloat16 x) { return (x.bits & 0x7f80u) != 0x7f80u; }
SOK_HD bool is_finite(Half x) { return (x.bits & 0x7c00u) != 0x7c00u; }

// Rounds to the nearest value of T, ties to even.
template <typename T>
SOK_HD T from_float(float x);

template <>
SOK_HD float from_float<float>(float x) {
  return x;
}

template <>
SOK_HD BFloat16 from_float<BFloat16>(float x) {
  std::uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return {static_cast<std::uint16_t>(bits >> 16)};
}

template <>
SOK_HD Half from_float<Half>(float x) {
#if defined(__CUDA_ARCH__)
  Half h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(x));
  return h;
#else
  const std::uint32_t bits = float_bits(x);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t result;
  if (magnitude >= 0x47800000u) {  // 65536 and more, infinity, NaN
    result = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 aligns and rounds the mantissa
    result = float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    magnitude += 0xc8000fffu + ((magnitude >> 13) & 1u);
    result = magnitude >> 13;
  }
  return {static_cast<std::uint16_t>(result | sign)};
#endif
}

}  // namespace sok

#endif  // SOK_CORE_TYPES_H_
