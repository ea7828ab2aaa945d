// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/stages.h"
#include "cc_ops/cpu/vector_ops.h"

namespace sok::cpu {
namespace {

// Calls f(plane) with the plane in its element type: the row type for values, float for states.
template <typename F>
void with_plane(const Table& table, int plane, F&& f) {
  if (plane > 0) return f(table.plane<float>(plane));
  with_row_type(table.config().row_type, [&](auto type) { f(table.plane<decltype(type)>(0)); });
}

}  // namespace

void read_plane(Executor& executor, const Table& table, int plane, const Row* rows,
                std::int64_t count, float* out) {
  with_plane(table, plane, [&](auto ref) {
    executor.parallel_for(count, 20 + ref.width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        convert(ref.row(rows[i]), ref.width, out + i * ref.width);
      }
    });
  });
}

void write_plane(Executor& executor, Table& table, int plane, const Row* rows, std::int64_t count,
                 const float* values) {
  with_plane(table, plane, [&](auto ref) {
    executor.parallel_for(count, 20 + ref.width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        convert(values + i * ref.width, ref.width, ref.row(rows[i]));
      }
    });
  });
}

}  // namespace sok::cpu
