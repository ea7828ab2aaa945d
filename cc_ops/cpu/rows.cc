// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <functional>

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

// Those from `begin` to `end` of some rows.
template <typename T>
void write(const PlaneRef<T>& plane, const Row* rows, std::int64_t begin, std::int64_t end,
           const float* values) {
  for (std::int64_t i = begin; i < end; ++i) {
    convert(values + i * plane.width, plane.width, plane.row(rows[i]));
  }
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
      write(ref, rows, begin, end, values);
    });
  });
}

Status import_rows(Executor& executor, Table& table, const Key* keys, std::int64_t count,
                   bool replace, const std::vector<PlaneValues>& values) {
  std::vector<PlaneSpec> specs;
  for (const PlaneValues& plane : values) specs.push_back(plane.spec);
  std::vector<Row> rows(count);
  const Insertions insertions({&table});
  SOK_RETURN_IF_ERROR(replace ? table.reserve_total(count)
                              : table.reserve(executor, {{keys, count}}));
  // Snapshots copy rows that are there: new ones are in none.
  if (table.has_snapshots()) {
    table.find(keys, count, rows.data());
    table.preserve(executor, rows.data(), count);
  }
  const int before = table.plane_count();
  SOK_RETURN_IF_ERROR(table.attach_planes(specs));
  std::vector<int> planes;
  std::function<void(std::int64_t, std::int64_t)> insert_and_write;
  std::int64_t width = 0;
  try {
    for (const PlaneSpec& spec : specs) {
      planes.push_back(table.plane_index(spec.name));
      width += spec.width;
    }
    const bool blank = static_cast<int>(planes.size()) == table.plane_count();
    // The keys are different: a row is its inserter's.
    insert_and_write = [&, blank](std::int64_t begin, std::int64_t end) {
      table.find_or_insert(keys + begin, end - begin, rows.data() + begin, blank);
      for (std::size_t p = 0; p < planes.size(); ++p) {
        with_plane(table, planes[p],
                   [&](auto ref) { write(ref, rows.data(), begin, end, values[p].values); });
      }
    };
    if (replace) table.clear();
  } catch (...) {
    table.detach_planes(before);
    throw;
  }
  // Nothing below asks for memory.
  executor.parallel_for(count, 100 + width, insert_and_write);
  return {};
}

}  // namespace sok::cpu
