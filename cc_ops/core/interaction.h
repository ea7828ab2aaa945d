// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The dot interaction of DLRM: the dot product of every two vectors of an example. A row of the
// result is
//
//   the first `beside` vectors | the products of the pairs (0, 1), (0, 2), ..., (N - 2, N - 1)
//
// Sums are float, rounded once to the vectors' type. The gradient of vector i is the sum over the
// others of (gradient of the pair) * (other vector), plus that of the vector's copy if it has one.
#ifndef SOK_CORE_INTERACTION_H_
#define SOK_CORE_INTERACTION_H_

#include <cstdint>
#include <vector>

#include "cc_ops/core/host_device.h"
#include "cc_ops/core/types.h"

namespace sok {

// The addresses of so many vectors are parameters of one launch on a GPU.
constexpr int kMostVectors = 128;

SOK_HD int pair_count(int vectors) { return vectors * (vectors - 1) / 2; }
// Where the pairs (i, i + 1), (i, i + 2), ... begin among all.
SOK_HD int first_pair(int i, int vectors) { return i * (2 * vectors - i - 1) / 2; }
SOK_HD int pair_place(int i, int j, int vectors) {
  return i < j ? first_pair(i, vectors) + j - i - 1 : first_pair(j, vectors) + i - j - 1;
}

// One call. On a GPU the pointers are the device's.
struct Interaction {
  RowType type = RowType::kFloat32;  // of everything
  std::int64_t batch = 0, width = 0;
  int beside = 0;
  std::vector<const void*> vectors;  // each [batch, width]

  int count() const { return static_cast<int>(vectors.size()); }
  std::int64_t copied() const { return beside * width; }
  // Of a row of the result.
  std::int64_t columns() const { return copied() + pair_count(count()); }
};

}  // namespace sok

#endif  // SOK_CORE_INTERACTION_H_
