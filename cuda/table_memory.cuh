// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Device memory of a table's own: small things, and counters.
#ifndef SOK_CUDA_TABLE_MEMORY_CUH_
#define SOK_CUDA_TABLE_MEMORY_CUH_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cc_ops/core/status.h"
#include "cuda/launch.cuh"

namespace sok::cuda {

// Copies values to new device memory.
template <typename T>
Status to_device(Context& context, const T* host, std::size_t count, Buffer* buffer) {
  *buffer = context.allocate(std::max<std::size_t>(1, count * sizeof(T)));
  if (buffer->data == nullptr) {
    return resource_exhausted("no device memory: ", count * sizeof(T), " bytes asked for");
  }
  // From pageable memory: the values are taken before the call returns.
  SOK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(buffer->data, host, count * sizeof(T),
                                           cudaMemcpyHostToDevice, stream_of(context)));
  return {};
}

inline Status zeroed(Context& context, std::size_t bytes, Buffer* buffer) {
  *buffer = context.allocate(bytes);
  if (buffer->data == nullptr)
    return resource_exhausted("no device memory: ", bytes, " bytes asked for");
  SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(buffer->data, 0, bytes, stream_of(context)));
  return {};
}

// Copies a device counter to the host: a synchronisation.
inline Status read_counter(Context& context, const void* device, std::int64_t* value) {
  unsigned long long read = 0;
  SOK_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(&read, device, sizeof read, cudaMemcpyDeviceToHost, stream_of(context)));
  SOK_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_of(context)));
  *value = static_cast<std::int64_t>(read);
  return {};
}

}  // namespace sok::cuda

#endif  // SOK_CUDA_TABLE_MEMORY_CUH_
