// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// An op on a GPU as the stages see it. Builds with CUDA only.
#ifndef SOK_KERNELS_GPU_CONTEXT_H_
#define SOK_KERNELS_GPU_CONTEXT_H_

#include <algorithm>
#include <memory>
#include <utility>

#include "cuda/context.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// The stream of a GPU op; the only use of TensorFlow's GPU device type (gpu_stream.cc).
void* gpu_stream(tensorflow::OpKernelContext* context);
// Sum in one order, at the cost of a sort.
bool fixed_order();

// Device memory from TensorFlow's allocator, held by tensors.
class GpuContext final : public cuda::Context {
 public:
  explicit GpuContext(tensorflow::OpKernelContext* context) : context_(context) {}
  void* stream() override { return gpu_stream(context_); }
  bool fixed_order() const override { return sok::fixed_order(); }
  cuda::Buffer allocate(std::size_t bytes) override { return take(bytes, {}, {}); }
  cuda::Buffer allocate_at_once(std::size_t bytes) override {
    tensorflow::AllocationAttributes attributes;
    attributes.retry_on_failure = false;
    return take(bytes, {}, attributes);
  }
  cuda::Buffer allocate_pinned(std::size_t bytes) override {
    tensorflow::AllocatorAttributes attributes;
    attributes.set_on_host(true);
    attributes.set_gpu_compatible(true);
    cuda::Buffer buffer = take(bytes, attributes, {});
    if (buffer.data == nullptr) return buffer;
    // TensorFlow hands host memory on at once, and the device may be at work on it.
    const auto give_back = [owner = std::move(buffer.owner),
                            device = cuda::current_device()](void*) mutable {
      cuda::wait_for_device(device);
      owner.reset();
    };
    return {std::shared_ptr<void>(buffer.data, give_back), buffer.data, bytes, true};
  }

 private:
  cuda::Buffer take(std::size_t bytes, tensorflow::AllocatorAttributes attributes,
                    const tensorflow::AllocationAttributes& allocation) {
    auto tensor = std::make_shared<tensorflow::Tensor>();
    const tensorflow::TensorShape shape(
        {static_cast<std::int64_t>(std::max<std::size_t>(1, bytes))});
    if (!context_->allocate_temp(tensorflow::DT_UINT8, shape, tensor.get(), attributes, allocation)
             .ok()) {
      return {};
    }
    void* data = tensor->data();
    return {std::move(tensor), data, bytes};
  }
  tensorflow::OpKernelContext* context_;
};

}  // namespace sok

#endif  // SOK_KERNELS_GPU_CONTEXT_H_
