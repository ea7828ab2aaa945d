// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/core/interaction.h"

#include <vector>

#include "cc_ops/kernels/device.h"

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class InteractionOp : public OpKernel {
 public:
  explicit InteractionOp(OpKernelConstruction* context) : OpKernel(context) {
    int vectors = 0;
    OP_REQUIRES_OK(context, context->GetAttr("N", &vectors));
    OP_REQUIRES_OK(context, context->GetAttr("beside", &beside_));
    OP_REQUIRES(
        context, beside_ <= vectors,
        absl::InvalidArgumentError(concat("DotInteraction: beside must be at most ", vectors,
                                          ", the number of vectors, got ", beside_)));
    OP_REQUIRES(context, vectors <= kMostVectors,
                absl::InvalidArgumentError(concat("DotInteraction: at most ", kMostVectors,
                                                  " vectors can be combined, got ", vectors)));
  }

 protected:
  Status read(OpKernelContext* context, Interaction* call) {
    tensorflow::OpInputList vectors;
    if (!context->input_list("vectors", &vectors).ok()) {
      return {Code::kInternal, "DotInteraction: no vectors"};
    }
    const TensorShape& shape = vectors[0].shape();
    if (shape.dims() != 2) {
      return invalid_argument("DotInteraction: vectors must be [batch, width], number 0 is ",
                              shape.DebugString());
    }
    for (const Tensor& vector : vectors) {
      if (vector.shape() != shape) {
        return invalid_argument("DotInteraction: vectors must have one shape, but number ",
                                call->vectors.size(), " is ", vector.shape().DebugString(),
                                " where number 0 is ", shape.DebugString());
      }
      call->vectors.push_back(vector.data());
    }
    call->type = row_type_of(vectors[0].dtype());
    call->batch = shape.dim_size(0);
    call->width = shape.dim_size(1);
    call->beside = beside_;
    return {};
  }

 private:
  int beside_ = 0;
};

template <typename Device>
class DotInteractionOp final : public InteractionOp {
 public:
  using InteractionOp::InteractionOp;

  void Compute(OpKernelContext* context) override {
    run_op(context, [&]() -> Status {
      Interaction call;
      SOK_RETURN_IF_ERROR(read(context, &call));
      Tensor* products = nullptr;
      SOK_RETURN_IF_ERROR(
          allocate(context, 0, TensorShape({call.batch, call.columns()}), &products));
      return Device(context).dot_interaction(call, products->data());
    });
  }
};

template <typename Device>
class DotInteractionGradOp final : public InteractionOp {
 public:
  using InteractionOp::InteractionOp;

  void Compute(OpKernelContext* context) override {
    run_op(context, [&]() -> Status {
      Interaction call;
      SOK_RETURN_IF_ERROR(read(context, &call));
      const Tensor& gradient = context->input(call.count());
      const TensorShape expected({call.batch, call.columns()});
      if (gradient.shape() != expected) {
        return invalid_argument("DotInteractionGrad: the gradient must be ", expected.DebugString(),
                                ", got ", gradient.shape().DebugString());
      }
      std::vector<void*> gradients;
      for (int i = 0; i < call.count(); ++i) {
        Tensor* of_vector = nullptr;
        SOK_RETURN_IF_ERROR(
            allocate(context, i, TensorShape({call.batch, call.width}), &of_vector));
        gradients.push_back(of_vector->data());
      }
      return Device(context).dot_interaction_gradients(call, gradient.data(), gradients);
    });
  }
};

REGISTER_KERNEL_BUILDER(Name("Sok>DotInteraction").Device(tensorflow::DEVICE_CPU),
                        DotInteractionOp<CpuDevice>);
REGISTER_KERNEL_BUILDER(Name("Sok>DotInteractionGrad").Device(tensorflow::DEVICE_CPU),
                        DotInteractionGradOp<CpuDevice>);
SOK_ON_GPU(REGISTER_KERNEL_BUILDER(Name("Sok>DotInteraction").Device(tensorflow::DEVICE_GPU),
                                   DotInteractionOp<GpuDevice>));
SOK_ON_GPU(REGISTER_KERNEL_BUILDER(Name("Sok>DotInteractionGrad").Device(tensorflow::DEVICE_GPU),
                                   DotInteractionGradOp<GpuDevice>));

}  // namespace
}  // namespace sok
