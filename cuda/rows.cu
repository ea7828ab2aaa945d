// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/launch.cuh"
#include "cuda/stages.h"

namespace sok::cuda {
namespace {

constexpr int kBlock = 256;

template <typename T>
__global__ void read_kernel(PlaneRef<T> plane, const Row* rows, std::int64_t count, float* out) {
  for (std::int64_t i = thread_index(); i < count * plane.width; i += thread_count()) {
    out[i] = to_float(plane.row(rows[i / plane.width])[i % plane.width]);
  }
}

template <typename T>
__global__ void write_kernel(PlaneRef<T> plane, const Row* rows, std::int64_t count,
                             const float* values) {
  for (std::int64_t i = thread_index(); i < count * plane.width; i += thread_count()) {
    plane.row(rows[i / plane.width])[i % plane.width] = from_float<T>(values[i]);
  }
}

template <typename F>
Status with_plane(const Table& table, int plane, F&& f) {
  const TableView view = table.view();
  if (plane > 0) return f(view.states[plane - 1].plane(view.shape));
  return with_row_type(view.row_type, [&](auto type) { return f(view.values<decltype(type)>()); });
}

}  // namespace

std::int64_t kernels_launched() { return launched_by_this_thread; }

Status copy(Context& context, void* to, const void* from, std::size_t bytes) {
  SOK_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(context)));
  return {};
}

Status copy_to_host(Context& context, void* to, const void* from, std::size_t bytes) {
  SOK_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_of(context)));
  return synchronise(context);
}

int current_device() {
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess ? device : 0;
}

void wait_for_device(int device) {
  const int before = current_device();
  if (before != device && cudaSetDevice(device) != cudaSuccess) return;
  static_cast<void>(cudaDeviceSynchronize());
  if (before != device) static_cast<void>(cudaSetDevice(before));
}

Status synchronise(Context& context) {
  SOK_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_of(context)));
  return {};
}

Status read_plane(Context& context, const Table& table, int plane, const Row* rows,
                  std::int64_t count, float* out) {
  return with_plane(table, plane, [&](auto ref) {
    return launch(context, "read_plane", read_kernel<std::remove_reference_t<decltype(*ref.slab0)>>,
                  count * ref.width, kBlock, ref, rows, count, out);
  });
}

Status write_plane(Context& context, const Table& table, int plane, const Row* rows,
                   std::int64_t count, const float* values) {
  return with_plane(table, plane, [&](auto ref) {
    return launch(context, "write_plane",
                  write_kernel<std::remove_reference_t<decltype(*ref.slab0)>>, count * ref.width,
                  kBlock, ref, rows, count, values);
  });
}

}  // namespace sok::cuda
