// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "cc_ops/kernels/merge_inputs.h"

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

template <typename Device>
class AllFiniteOp final : public OpKernel {
 public:
  explicit AllFiniteOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    run_op(context, [&] { return run(context); });
  }

 private:
  Status run(OpKernelContext* context) {
    tensorflow::OpInputList tensors;
    if (!context->input_list("tensors", &tensors).ok()) {
      return {Code::kInternal, "AllFinite: no tensors"};
    }
    std::vector<Values> values;
    for (const Tensor& tensor : tensors) {
      values.push_back({row_type_of(tensor.dtype()), tensor.data(), tensor.NumElements()});
    }
    Tensor* finite = nullptr;
    SOK_RETURN_IF_ERROR(allocate(context, 0, TensorShape({}), &finite));
    return Device(context).all_finite(values, finite->template scalar<bool>().data());
  }
};

template <typename Device>
class BagsFiniteOp final : public OpKernel {
 public:
  explicit BagsFiniteOp(OpKernelConstruction* context) : OpKernel(context), inputs_(context) {
    OP_REQUIRES_OK(context, context->GetAttr("output_types", &output_types_));
  }

  void Compute(OpKernelContext* context) override {
    run_op(context, [&] { return run(context); });
  }

 private:
  Status run(OpKernelContext* context) {
    std::vector<std::vector<typename Device::MergeFeature>> by_table;
    SOK_RETURN_IF_ERROR(read_merge_features<Device>(context, inputs_, output_types_, &by_table));
    std::vector<BagGradients> gradients;
    std::vector<std::size_t> taken(by_table.size(), 0);
    for (int f = 0; f < inputs_.features(); ++f) {
      const int table = inputs_.table_of(f);
      const auto& feature = by_table[table][taken[table]++];
      gradients.push_back({feature.bags, feature.gradient, inputs_.dimension(f)});
    }
    Tensor* finite = nullptr;
    SOK_RETURN_IF_ERROR(allocate(context, 0, TensorShape({}), &finite));
    return Device(context).bags_finite(gradients, finite->template scalar<bool>().data());
  }

  FeatureInputs inputs_;
  std::vector<tensorflow::DataType> output_types_;
};

REGISTER_KERNEL_BUILDER(Name("Sok>AllFinite").Device(tensorflow::DEVICE_CPU),
                        AllFiniteOp<CpuDevice>);
SOK_ON_GPU(REGISTER_KERNEL_BUILDER(Name("Sok>AllFinite").Device(tensorflow::DEVICE_GPU),
                                   AllFiniteOp<GpuDevice>));
REGISTER_KERNEL_BUILDER(Name("Sok>BagsFinite").Device(tensorflow::DEVICE_CPU),
                        BagsFiniteOp<CpuDevice>);
SOK_ON_GPU(REGISTER_KERNEL_BUILDER(Name("Sok>BagsFinite").Device(tensorflow::DEVICE_GPU),
                                   BagsFiniteOp<GpuDevice>));

}  // namespace
}  // namespace sok
