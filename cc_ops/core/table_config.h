// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CORE_TABLE_CONFIG_H_
#define SOK_CORE_TABLE_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc_ops/core/initialize.h"
#include "cc_ops/core/status.h"
#include "cc_ops/core/types.h"

namespace sok {

// What a lookup without insertion gives for an id that has no row.
enum class DefaultRow : int { kInitialValue = 0, kZeros = 1, kVector = 2 };

// What a static table does with an id outside [0, rows).
enum class OutOfRange : int { kError = 0, kZero = 1, kClip = 2 };
constexpr const char* kOutOfRangeNames[] = {"error", "zero", "clip"};

struct TableConfig {
  std::string name;
  RowType row_type = RowType::kFloat32;
  std::int64_t dimension = 0;
  std::int64_t rows = -1;  // >= 0: a static table, an array of this many rows
  // Row r of a static table is the one of id r * id_stride + id_offset: on several ranks each has
  // every stride-th row.
  std::int64_t id_offset = 0;
  std::int64_t id_stride = 1;
  std::int64_t capacity = 0;      // rows to make room for at creation
  std::int64_t max_capacity = 0;  // 0: grows without bound
  // Bytes of rows, with their states, for which a GPU takes its own memory, as long as there is some.
  // Further rows lie in pinned host memory, which it reads and writes where it is.
  static constexpr std::int64_t kAllOnDevice = -1;  // and growth fails where that has no more room
  std::int64_t device_bytes = kAllOnDevice;
  Initializer initializer;
  DefaultRow default_row = DefaultRow::kInitialValue;
  std::vector<float> default_vector;
  OutOfRange out_of_range = OutOfRange::kError;
  bool collide = false;  // test only: every key hashes to 0

  bool is_static() const { return rows >= 0; }
};

// One optimizer state: `width` floats a row, which start at `initial`.
struct PlaneSpec {
  std::string name;
  std::int64_t width = 0;
  float initial = 0;
};

// What rows get in a plane: on the device of the table.
struct PlaneValues {
  PlaneSpec spec;
  const float* values = nullptr;  // [rows, spec.width]
};

// A plane that the table has already, or is to have, does for `wanted` if it is as wide.
inline Status check_width(const std::string& table, const PlaneSpec& known,
                          const PlaneSpec& wanted) {
  if (known.width == wanted.width) return {};
  return invalid_argument("table '", table, "': plane '", known.name, "' has width ", known.width,
                          ", not ", wanted.width);
}

// A table that is to be filled anew with more rows than it may hold.
inline Status too_many_rows(const std::string& table, std::int64_t rows, std::int64_t most) {
  return resource_exhausted("table '", table, "': ", rows, " rows do not fit; it takes at most ",
                            most, "; it is unchanged");
}

}  // namespace sok

#endif  // SOK_CORE_TABLE_CONFIG_H_
