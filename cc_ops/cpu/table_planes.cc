// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The rows of a table: slabs of its planes, and what is in them at the beginning.
#include <algorithm>

#include "cc_ops/cpu/initialize_rows.h"
#include "cc_ops/cpu/table.h"

namespace sok::cpu {

Status Table::add_slab(Plane* plane) {
  const auto number = static_cast<std::uint32_t>(plane->slabs.size());
  const std::size_t bytes =
      shape_.rows_in(number) * static_cast<std::size_t>(plane->spec.width) * plane->element_bytes;
  Memory slab(allocator_, bytes);
  if (slab.data() == nullptr) return no_memory(plane->spec.name.c_str(), bytes);
  plane->pointers.push_back(slab.data());
  plane->slabs.push_back(std::move(slab));
  return {};
}

Status Table::grow_rows(std::int64_t rows) {
  while (slab_rows_ < rows) {
    for (Plane& plane : planes_) {
      // After a failure half-way a plane already has this slab.
      if (plane.slabs.size() > slabs_) continue;
      SOK_RETURN_IF_ERROR(add_slab(&plane));
    }
    slab_rows_ += static_cast<std::int64_t>(shape_.rows_in(static_cast<std::uint32_t>(slabs_)));
    ++slabs_;
  }
  return {};
}

int Table::plane_index(const std::string& name) const {
  for (int i = 0; i < plane_count(); ++i) {
    if (planes_[i].spec.name == name) return i;
  }
  return -1;
}

Status Table::attach_planes(const std::vector<PlaneSpec>& specs) {
  SOK_RETURN_IF_ERROR(check_planes(*this, specs));
  std::vector<Plane> added;
  for (const PlaneSpec& spec : specs) {
    if (plane_index(spec.name) >= 0) continue;
    Plane plane;
    plane.spec = spec;
    while (plane.slabs.size() < slabs_) SOK_RETURN_IF_ERROR(add_slab(&plane));
    if (spec.initial != 0.0f) fill_initial(&plane);
    added.push_back(std::move(plane));
  }
  planes_.reserve(planes_.size() + added.size());
  for (Plane& plane : added) planes_.push_back(std::move(plane));
  return {};
}

void Table::detach_planes(int first) {
  planes_.erase(planes_.begin() + first, planes_.end());
  lag_ = {};  // it may rest on them
}

void Table::fill_initial(Plane* plane) {
  std::int64_t left = config_.is_static() ? config_.rows : next_row_;
  for (std::size_t s = 0; s < plane->slabs.size() && left > 0; ++s) {
    const auto rows = std::min<std::int64_t>(
        left, static_cast<std::int64_t>(shape_.rows_in(static_cast<std::uint32_t>(s))));
    std::fill_n(static_cast<float*>(plane->pointers[s]), rows * plane->spec.width,
                plane->spec.initial);
    left -= rows;
  }
}

void Table::initialize_rows(const Key* keys, const Row* rows, std::int64_t count) {
  with_row_type(config_.row_type, [&](auto type) {
    using T = decltype(type);
    const PlaneRef<T> values = plane<T>(0);
    T* pointers[kNewRows];
    for (std::int64_t i = 0; i < count; ++i) pointers[i] = values.row(rows[i]);
    cpu::initialize_rows(config_.initializer, keys, count, values.width, pointers);
  });
  for (int p = 1; p < plane_count(); ++p) {
    const PlaneRef<float> states = plane<float>(p);
    for (std::int64_t i = 0; i < count; ++i) {
      std::fill_n(states.row(rows[i]), states.width, planes_[p].spec.initial);
    }
  }
}

void Table::initialize_static(Executor& executor) {
  executor.parallel_for(config_.rows, config_.dimension * 5,
                        [this](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t first = begin; first < end; first += kNewRows) {
                            Key keys[kNewRows];
                            Row rows[kNewRows];
                            const std::int64_t count = std::min(kNewRows, end - first);
                            for (std::int64_t i = 0; i < count; ++i) {
                              keys[i] = (first + i) * config_.id_stride + config_.id_offset;
                              rows[i] = static_cast<Row>(first + i);
                            }
                            initialize_rows(keys, rows, count);
                          }
                        });
}

void Table::default_row(Key key, float* out) const {
  const bool out_of_range = config_.is_static();
  if (out_of_range || config_.default_row == DefaultRow::kZeros) {
    std::fill_n(out, config_.dimension, 0.0f);
  } else if (config_.default_row == DefaultRow::kVector) {
    std::copy_n(config_.default_vector.data(), config_.dimension, out);
  } else {
    // Through the row type, so that the value is the one that an insertion would store.
    with_row_type(config_.row_type, [&](auto type) {
      using T = decltype(type);
      for (std::int64_t c = 0; c < config_.dimension; c += 4) {
        float four[4];
        config_.initializer.block(key, static_cast<std::uint32_t>(c >> 2), four);
        for (std::int64_t i = c; i < std::min(c + 4, config_.dimension); ++i) {
          out[i] = to_float(from_float<T>(four[i - c]));
        }
      }
    });
  }
}

}  // namespace sok::cpu
