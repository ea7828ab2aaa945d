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

// Device or pinned host memory. Copies share it; the last one gives it back: device memory in stream
// order, pinned memory once the device has done its work.
struct Buffer {
  std::shared_ptr<void> owner;
  void* data = nullptr;
  std::size_t bytes = 0;
  bool pinned = false;

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
  // The same, but without waiting for other ops to give memory back.
  virtual Buffer allocate_at_once(std::size_t bytes) { return allocate(bytes); }
  // Host memory that the device can read and write.
  virtual Buffer allocate_pinned(std::size_t bytes) = 0;
  // Whether sums must have one order: then a batch gives the same bits in every run.
  virtual bool fixed_order() const { return false; }
};

// Waits for all work of a device, and says nothing of its errors: for what must be given back.
int current_device();
void wait_for_device(int device);

// How many kernels the calling thread has launched (launch.cuh).
std::int64_t kernels_launched();

}  // namespace sok::cuda

#endif  // SOK_CUDA_CONTEXT_H_
