// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// What an op lends to the CUDA side, without any CUDA or TensorFlow type.
#ifndef SOK_CUDA_CONTEXT_H_
#define SOK_CUDA_CONTEXT_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace sok::cuda {

// Device or pinned host memory. Copies share it; the last one gives it back, in stream order.
struct Buffer {
  std::shared_ptr<void> owner;
  void* data = nullptr;
  std::size_t bytes = 0;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// One op's stream and memory. All work of an op is queued on the stream; nothing waits for it
// unless a function says so.
class Context {
 public:
  virtual ~Context() = default;
  virtual void* stream() = 0;  // a cudaStream_t
  // Device memory, not initialised, aligned to 256 bytes; data is null if there is none left.
  virtual Buffer allocate(std::size_t bytes) = 0;
  // Host memory that the device can read and write.
  virtual Buffer allocate_pinned(std::size_t bytes) = 0;
  // Whether sums must have one order: then a batch gives the same bits in every run.
  virtual bool fixed_order() const { return false; }
};

// How many kernels the calling thread has launched (launch.cuh).
std::int64_t kernels_launched();

}  // namespace sok::cuda

#endif  // SOK_CUDA_CONTEXT_H_
