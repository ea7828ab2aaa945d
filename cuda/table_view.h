// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// A table in device memory as kernels see it. Each table keeps a copy of its view beside its rows.
#ifndef SOK_CUDA_TABLE_VIEW_H_
#define SOK_CUDA_TABLE_VIEW_H_

#include <cstdint>

#include "cc_ops/core/initialize.h"
#include "cc_ops/core/table_config.h"
#include "cc_ops/core/table_ref.h"
#include "cc_ops/core/types.h"

namespace sok::cuda {

// States of all optimizers that ever updated one table.
constexpr int kMostPlanes = 8;

// The first input that a kernel refused, in pinned host memory: an id out of the range of a static
// table, or row splits that lie.
struct Offending {
  std::int64_t value;     // the id, or the entry
  std::int64_t position;  // of the id in its feature, or of the entry
  std::int64_t before;    // the entry before it
  std::int64_t ids;       // of the feature
  std::int32_t feature;   // whose row splits they are; -1: an id
  std::uint32_t raised;
};

// How many rows were taken when a round of insertions had ended, in pinned host memory: one 16-byte
// store of the device.
struct alignas(16) Taken {
  std::uint64_t round;
  std::uint64_t count;
};

// Rows are given out by a counter that runs from one synchronised moment to the next: first those
// of erased keys, from the end of `free_rows`, then fresh ones.
struct RowSource {
  unsigned long long* taken;
  Taken* report_to;
  const Row* free_rows;
  std::int64_t free;
  std::int64_t next;

  SOK_HD Row row(std::int64_t i) const {
    return i < free ? free_rows[free - 1 - i] : static_cast<Row>(next + i - free);
  }

#if defined(__CUDACC__)
  // Tells the host, without making it wait, how many rows were taken up to a round of insertions. A
  // kernel after that round's insertions calls it, from one thread.
  __device__ void report(std::uint64_t round) const {
    const unsigned long long now = *static_cast<volatile unsigned long long*>(taken);
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};"
                 :
                 : "l"(report_to), "l"(round), "l"(now));
  }
#endif
};

// One optimizer state.
struct StateView {
  float* slab0;
  float* const* slabs;
  std::int64_t width;
  float initial;

  SOK_HD PlaneRef<float> plane(const SlabShape& shape) const {
    return {slab0, slabs, shape, width};
  }
};

struct TableView {
  IndexRef index;
  RowSource source;
  SlabShape shape;
  void* slab0;         // of the values
  void* const* slabs;  // of the values, in device memory
  std::int64_t width;
  std::int64_t rows;  // >= 0: static
  OutOfRange out_of_range;
  RowType row_type;
  Initializer initializer;
  DefaultRow default_row;
  const float* default_vector;
  Offending* offending;       // pinned
  std::uint32_t* suppressed;  // device: no update happens while this is set
  std::int32_t state_count;
  StateView states[kMostPlanes];  // what an insertion must initialise beside the values

  SOK_HD bool is_static() const { return rows >= 0; }
  template <typename T>
  SOK_HD PlaneRef<T> values() const {
    return {static_cast<T*>(slab0), reinterpret_cast<T* const*>(slabs), shape, width};
  }
};

}  // namespace sok::cuda

#endif  // SOK_CUDA_TABLE_VIEW_H_
