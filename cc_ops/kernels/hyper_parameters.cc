// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "cc_ops/kernels/device.h"

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

template <typename Device>
class HyperParametersOp final : public OpKernel {
 public:
  explicit HyperParametersOp(OpKernelConstruction* context) : OpKernel(context) {
    int scalars = 0;
    OP_REQUIRES_OK(context, context->GetAttr("num_scalars", &scalars));
    OP_REQUIRES_OK(context, context->GetAttr("places", &places_));
    OP_REQUIRES_OK(context, context->GetAttr("values", &values_));
    OP_REQUIRES(context, places_.size() == static_cast<std::size_t>(scalars),
                absl::InvalidArgumentError("places needs one entry a scalar"));
    OP_REQUIRES(context, values_.size() <= kMostHyperParameters,
                absl::InvalidArgumentError("more than 16 hyper-parameters"));
    for (const std::int32_t place : places_) {
      OP_REQUIRES(context, place >= 0 && place < static_cast<std::int64_t>(values_.size()),
                  absl::InvalidArgumentError("places names a value that is not there"));
    }
  }

  void Compute(OpKernelContext* context) override {
    run_op(context, [&] { return run(context); });
  }

 private:
  Status run(OpKernelContext* context) {
    tensorflow::OpInputList scalars;
    if (!context->input_list("scalars", &scalars).ok()) {
      return {Code::kInternal, "HyperParameters: no scalars"};
    }
    HyperParameters parameters;
    parameters.count = static_cast<std::int32_t>(values_.size());
    std::copy(values_.begin(), values_.end(), parameters.values);
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (scalars[i].NumElements() != 1) {
        return invalid_argument("hyper-parameter ", places_[i], " must be a scalar, got the shape ",
                                scalars[i].shape().DebugString());
      }
      parameters.scalars[places_[i]] = scalars[i].template flat<float>().data();
    }
    Tensor* hyper = nullptr;
    SOK_RETURN_IF_ERROR(
        allocate(context, 0, TensorShape({static_cast<std::int64_t>(values_.size())}), &hyper));
    return Device(context).hyper_parameters(parameters, hyper->template flat<float>().data());
  }

  std::vector<std::int32_t> places_;
  std::vector<float> values_;
};

REGISTER_KERNEL_BUILDER(Name("Sok>HyperParameters").Device(tensorflow::DEVICE_CPU),
                        HyperParametersOp<CpuDevice>);
SOK_ON_GPU(REGISTER_KERNEL_BUILDER(Name("Sok>HyperParameters").Device(tensorflow::DEVICE_GPU),
                                   HyperParametersOp<GpuDevice>));

}  // namespace
}  // namespace sok
