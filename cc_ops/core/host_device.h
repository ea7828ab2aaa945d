// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// What lets one header compile for g++ and for nvcc without including a CUDA header.
#ifndef SOK_CORE_HOST_DEVICE_H_
#define SOK_CORE_HOST_DEVICE_H_

#if defined(__CUDACC__)
#define SOK_HD __host__ __device__ __forceinline__
#else
#define SOK_HD inline
#endif

namespace sok {

// Single-rounding arithmetic that neither compiler may contract into a fused multiply-add, for
// results that must be equal bit for bit on every device. The host side relies on
// -ffp-contract=off, which the build sets.
#if defined(__CUDA_ARCH__)
SOK_HD float mul_rn(float a, float b) { return __fmul_rn(a, b); }
SOK_HD float add_rn(float a, float b) { return __fadd_rn(a, b); }
SOK_HD float sqrt_rn(float a) { return __fsqrt_rn(a); }
#else
SOK_HD float mul_rn(float a, float b) { return a * b; }
SOK_HD float add_rn(float a, float b) { return a + b; }
SOK_HD float sqrt_rn(float a) { return __builtin_sqrtf(a); }
#endif

}  // namespace sok

#endif  // SOK_CORE_HOST_DEVICE_H_
