// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc_ops/kernels/device.h"
#include "tensorflow/core/framework/allocation_description.pb.h"
#include "tensorflow/core/framework/resource_base.h"
#include "tensorflow/core/framework/resource_handle.h"

#ifdef SOK_WITH_CUDA
#include "cuda/batch_copier.h"
#endif

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class HeldBatch final : public tensorflow::ResourceBase {
 public:
  explicit HeldBatch(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {}
  std::string DebugString() const override {
    return concat("a batch of ", tensors_.size(), " tensors");
  }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<Tensor> tensors_;
};

// No stage: it runs on the host whatever the device.
class HoldBatchOp final : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    run_uncounted(context, [&]() -> Status {
      std::vector<Tensor> tensors;
      for (int i = 0; i < context->num_inputs(); ++i) tensors.push_back(context->input(i));
      Tensor* handle = nullptr;
      SOK_RETURN_IF_ERROR(allocate(context, 0, TensorShape({}), &handle));
      handle->scalar<tensorflow::ResourceHandle>()() =
          tensorflow::ResourceHandle::MakeRefCountingHandle(new HeldBatch(std::move(tensors)),
                                                            context->device()->name());
      return {};
    });
  }
};

class CopyBatchOp : public OpKernel {
 public:
  explicit CopyBatchOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
    OP_REQUIRES(context, static_cast<int>(shapes_.size()) == context->num_outputs(),
                absl::InvalidArgumentError(concat("CopyBatch: ", context->num_outputs(),
                                                  " types, but ", shapes_.size(), " shapes")));
  }

  void Compute(OpKernelContext* context) final {
    run_op(context, [&]() -> Status {
      if (context->input(0).dims() != 0) {
        return invalid_argument("CopyBatch: the batch must be one handle, not ",
                                context->input(0).shape().DebugString(), " of them");
      }
      const auto& handle = context->input(0).scalar<tensorflow::ResourceHandle>()();
      const auto held = handle.GetResource<HeldBatch>();
      if (!handle.IsRefCounting() || !held.ok()) {
        return invalid_argument("CopyBatch: the handle is none of HoldBatch");
      }
      const std::vector<Tensor>& tensors = (*held)->tensors();
      if (static_cast<int>(tensors.size()) != context->num_outputs()) {
        return invalid_argument("CopyBatch: the handle holds ", tensors.size(), " tensors, not ",
                                context->num_outputs());
      }
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (tensors[i].dtype() != context->expected_output_dtype(static_cast<int>(i)) ||
            !shapes_[i].IsCompatibleWith(tensors[i].shape())) {
          return invalid_argument("CopyBatch: tensor ", i, " is ",
                                  DataTypeString(tensors[i].dtype()), " of shape ",
                                  tensors[i].shape().DebugString(), ", not ",
                                  DataTypeString(context->expected_output_dtype(i)), " of shape ",
                                  shapes_[i].DebugString());
        }
      }
      return copy(context, tensors);
    });
  }

 protected:
  virtual Status copy(OpKernelContext* context, const std::vector<Tensor>& tensors) = 0;

 private:
  std::vector<tensorflow::PartialTensorShape> shapes_;
};

class CopyBatchOnHostOp final : public CopyBatchOp {
  using CopyBatchOp::CopyBatchOp;

  Status copy(OpKernelContext* context, const std::vector<Tensor>& tensors) override {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      context->set_output(static_cast<int>(i), tensors[i]);
    }
    return {};
  }
};

REGISTER_KERNEL_BUILDER(Name("Sok>HoldBatch").Device(tensorflow::DEVICE_CPU), HoldBatchOp);
REGISTER_KERNEL_BUILDER(Name("Sok>CopyBatch").Device(tensorflow::DEVICE_CPU), CopyBatchOnHostOp);

#ifdef SOK_WITH_CUDA

// A tensor of a batch: the batch lives as long as one of its tensors.
class BatchBuffer final : public tensorflow::TensorBuffer {
 public:
  BatchBuffer(std::shared_ptr<cuda::DeviceBatch> batch, int array, std::size_t bytes)
      : TensorBuffer(batch->array(array)), batch_(std::move(batch)), bytes_(bytes) {}
  std::size_t size() const override { return bytes_; }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(tensorflow::AllocationDescription* proto) const override {
    proto->set_requested_bytes(static_cast<std::int64_t>(bytes_));
    proto->set_allocator_name("sok_batch");
  }

 private:
  std::shared_ptr<cuda::DeviceBatch> batch_;
  std::size_t bytes_;
};

class CopyBatchToDeviceOp final : public CopyBatchOp {
 public:
  using CopyBatchOp::CopyBatchOp;

 private:
  Status copy(OpKernelContext* context, const std::vector<Tensor>& tensors) override {
    std::vector<cuda::HostArray> arrays;
    for (const Tensor& tensor : tensors) {
      if (!tensorflow::DataTypeCanUseMemcpy(tensor.dtype())) {
        return invalid_argument("CopyBatch: tensors of ", DataTypeString(tensor.dtype()),
                                " cannot be on a GPU");
      }
      arrays.push_back({tensor.data(), tensor.TotalBytes()});
    }
    GpuContext gpu(context);
    KernelExecutor threads(context);
    // Pages: a thread's share of the copy.
    constexpr std::size_t kPage = 4096;
    const auto parallel = [&](std::size_t total, const cuda::BatchCopier::Ranges& ranges) {
      const auto pages = static_cast<std::int64_t>((total + kPage - 1) / kPage);
      threads.parallel_for(pages, 400, [&](std::int64_t begin, std::int64_t end) {
        ranges(static_cast<std::size_t>(begin) * kPage,
               std::min(static_cast<std::size_t>(end) * kPage, total));
      });
    };
    std::shared_ptr<cuda::DeviceBatch> batch;
    SOK_RETURN_IF_ERROR(copier_->copy(gpu, arrays, parallel, &batch));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      tensorflow::core::RefCountPtr<tensorflow::TensorBuffer> buffer(
          new BatchBuffer(batch, static_cast<int>(i), tensors[i].TotalBytes()));
      context->set_output(static_cast<int>(i),
                          Tensor(tensors[i].dtype(), tensors[i].shape(), std::move(buffer)));
    }
    return {};
  }

  std::shared_ptr<cuda::BatchCopier> copier_ = cuda::BatchCopier::create();
};

REGISTER_KERNEL_BUILDER(Name("Sok>CopyBatch").Device(tensorflow::DEVICE_GPU).HostMemory("batch"),
                        CopyBatchToDeviceOp);

#endif  // SOK_WITH_CUDA

}  // namespace
}  // namespace sok
