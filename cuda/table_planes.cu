// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The rows of a table: slabs of its planes, and what is in them at the beginning.
#include <algorithm>

#include "cc_ops/core/optimizer_spec.h"
#include "cuda/launch.cuh"
#include "cuda/table.h"
#include "cuda/table_memory.cuh"
#include "cuda/tuning.h"

namespace sok::cuda {
namespace {

__global__ void fill_kernel(float* out, std::int64_t count, float value) {
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) out[i] = value;
}

template <typename T>
__global__ void initialize_kernel(Initializer initializer, std::int64_t id_offset,
                                  std::int64_t id_stride, std::int64_t rows, std::int64_t width,
                                  T* out) {
  const std::int64_t blocks = (width + 3) / 4;
  for (std::int64_t i = thread_index(); i < rows * blocks; i += thread_count()) {
    const std::int64_t row = i / blocks;
    const std::int64_t column = i % blocks * 4;
    float four[4];
    initializer.block(row * id_stride + id_offset, static_cast<std::uint32_t>(column / 4), four);
    for (std::int64_t c = column; c < width && c < column + 4; ++c) {
      out[row * width + c] = from_float<T>(four[c - column]);
    }
  }
}

}  // namespace

Status Table::initialize_static(Context& context) {
  return with_row_type(config_.row_type, [&](auto type) {
    using T = decltype(type);
    return launch(context, "initialize", initialize_kernel<T>,
                  config_.rows * ((config_.dimension + 3) / 4), tuning::kBlock, config_.initializer,
                  config_.id_offset, config_.id_stride, config_.rows, config_.dimension,
                  static_cast<T*>(planes_[0].pointers[0]));
  });
}

Status Table::fill_initial(Context& context, const Plane& plane, std::size_t slab) {
  const std::int64_t count =
      static_cast<std::int64_t>(shape_.rows_in(static_cast<std::uint32_t>(slab))) *
      plane.spec.width;
  return launch(context, "fill", fill_kernel, count, tuning::kBlock,
                static_cast<float*>(plane.pointers[slab]), count, plane.spec.initial);
}

std::int64_t Table::slab_bytes(bool pinned) const {
  std::size_t total = 0;
  for (const Plane& plane : planes_) {
    for (const Buffer& slab : plane.slabs) total += slab.pinned == pinned ? slab.bytes : 0;
  }
  return static_cast<std::int64_t>(total);
}

Buffer Table::allocate_slab(Context& context, std::size_t bytes) {
  if (config_.device_bytes == TableConfig::kAllOnDevice) return context.allocate(bytes);
  const std::int64_t used = slab_bytes(false);
  if (static_cast<std::int64_t>(bytes) <= config_.device_bytes - used) {
    // Room for the next index must be left: it lies nowhere else.
    const Buffer next_index = context.allocate_at_once(2 * (control_.bytes + slots_.bytes));
    Buffer slab = context.allocate_at_once(bytes);
    if (next_index.data != nullptr && slab.data != nullptr) return slab;
    config_.device_bytes = used;  // what the device has left is for others: it is not asked again
  }
  return context.allocate_pinned(bytes);
}

Status Table::add_slab(Context& context, Plane* plane, std::size_t number) {
  const std::size_t bytes = shape_.rows_in(static_cast<std::uint32_t>(number)) *
                            static_cast<std::size_t>(plane->spec.width) * plane->element_bytes;
  Buffer slab = allocate_slab(context, bytes);
  if (slab.data == nullptr) return no_memory(plane->spec.name.c_str(), bytes);
  plane->pointers.push_back(slab.data);
  plane->slabs.push_back(std::move(slab));
  return {};
}

Status Table::publish_slabs(Context& context, Plane* plane) {
  view_is_current_ = false;
  return to_device(context, plane->pointers.data(), plane->pointers.size(),
                   &plane->device_pointers);
}

Status Table::grow_rows(Context& context, std::int64_t rows) {
  if (slab_rows_ >= rows) return {};
  while (slab_rows_ < rows) {
    for (Plane& plane : planes_) {
      if (plane.slabs.size() > slabs_) continue;
      SOK_RETURN_IF_ERROR(add_slab(context, &plane, slabs_));
    }
    // Before the slab counts: a table whose next slab finds no memory goes on with this one.
    for (Plane& plane : planes_) SOK_RETURN_IF_ERROR(publish_slabs(context, &plane));
    slab_rows_ += static_cast<std::int64_t>(shape_.rows_in(static_cast<std::uint32_t>(slabs_)));
    ++slabs_;
  }
  return {};
}

StateView Table::state(int i) const {
  const Plane& plane = planes_[i];
  return {static_cast<float*>(plane.pointers[0]),
          static_cast<float* const*>(plane.device_pointers.data), plane.spec.width,
          plane.spec.initial};
}

int Table::plane_index(const std::string& name) const {
  for (int i = 0; i < plane_count(); ++i) {
    if (planes_[i].spec.name == name) return i;
  }
  return -1;
}

Status Table::attach_planes(Context& context, const std::vector<PlaneSpec>& specs) {
  SOK_RETURN_IF_ERROR(check_planes(*this, specs));
  const std::size_t before = planes_.size();
  for (const PlaneSpec& spec : specs) {
    const Status status = attach_plane(context, spec);
    if (status.ok()) continue;
    planes_.resize(before);
    return status;
  }
  if (planes_.size() != before) view_is_current_ = false;
  return {};
}

Status Table::attach_plane(Context& context, const PlaneSpec& spec) {
  if (plane_index(spec.name) >= 0) return {};
  if (plane_count() > kMostPlanes) {
    return invalid_argument("table '", config_.name, "': more than ", kMostPlanes,
                            " optimizer states");
  }
  Plane& plane = planes_.emplace_back();
  plane.spec = spec;
  for (std::size_t s = 0; s < slabs_; ++s) {
    SOK_RETURN_IF_ERROR(add_slab(context, &plane, s));
    SOK_RETURN_IF_ERROR(fill_initial(context, plane, s));
  }
  return publish_slabs(context, &plane);
}

void Table::detach_planes(int first) {
  planes_.erase(planes_.begin() + first, planes_.end());
  view_is_current_ = false;
}

Status Table::row_tags(Context& context, std::uint32_t** tags) {
  const std::int64_t rows =
      std::max<std::int64_t>(1, config_.is_static() ? config_.rows : slab_rows_);
  if (tag_rows_ < rows) {
    Buffer grown;
    SOK_RETURN_IF_ERROR(
        zeroed(context, static_cast<std::size_t>(rows) * sizeof(std::uint32_t), &grown));
    tags_ = std::move(grown);
    tag_rows_ = rows;
  }
  *tags = tags_.as<std::uint32_t>();
  return {};
}

Status Table::zero_tags(Context& context) {
  SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(tags_.data, 0, tags_.bytes, stream_of(context)));
  return {};
}

}  // namespace sok::cuda
