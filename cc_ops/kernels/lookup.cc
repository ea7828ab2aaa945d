// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/kernels/device.h"
#include "cc_ops/kernels/feature_inputs.h"

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

template <typename Table>
Status check_dimension(const Table& table, std::int64_t dimension) {
  if (table.config().dimension == dimension) return {};
  return invalid_argument("table '", table.config().name, "' has dimension ",
                          table.config().dimension, ", not ", dimension);
}

template <typename Device>
class LookupOp final : public OpKernel {
  using Table = typename Device::Table;

 public:
  explicit LookupOp(OpKernelConstruction* context) : OpKernel(context), inputs_(context) {
    OP_REQUIRES_OK(context, context->GetAttr("training", &training_));
    OP_REQUIRES_OK(context, context->GetAttr("output_types", &output_types_));
  }

  void Compute(OpKernelContext* context) override {
    LockedTables<Table> tables;
    OP_REQUIRES_OK(context, tables.lock(context, "tables", training_ || !Device::kOnHost));
    lock_to_read<Device>(&tables);
    run_op(context, [&] { return run(context, tables); });
  }

 private:
  Status run(OpKernelContext* context, const LockedTables<Table>& tables) {
    std::vector<Bags> bags;
    SOK_RETURN_IF_ERROR(inputs_.read(context, Device::kOnHost, &bags));
    std::vector<typename Device::LookupFeature> features;
    for (int f = 0; f < inputs_.features(); ++f) {
      Table& table = tables[inputs_.table_of(f)];
      SOK_RETURN_IF_ERROR(check_dimension(table, inputs_.dimension(f)));
      Tensor* output = nullptr;
      if (auto status = context->allocate_output(
              f, TensorShape({bags[f].bags, inputs_.dimension(f)}), &output);
          !status.ok()) {
        return resource_exhausted(std::string(status.message()));
      }
      features.push_back(
          {&table, bags[f], {row_type_of(output_types_[f]), output->data()}, inputs_.max_norm(f)});
    }
    return Device(context).lookup(features, training_);
  }

  FeatureInputs inputs_;
  std::vector<tensorflow::DataType> output_types_;
  bool training_ = false;
};

template <typename Device>
class WeightGradientsOp final : public OpKernel {
  using Table = typename Device::Table;

 public:
  explicit WeightGradientsOp(OpKernelConstruction* context) : OpKernel(context), inputs_(context) {}

  void Compute(OpKernelContext* context) override {
    LockedTables<Table> tables;
    OP_REQUIRES_OK(context, tables.lock(context, "tables", !Device::kOnHost));
    lock_to_read<Device>(&tables);
    run_op(context, [&] { return run(context, tables); });
  }

 private:
  Status run(OpKernelContext* context, const LockedTables<Table>& tables) {
    std::vector<Bags> bags;
    SOK_RETURN_IF_ERROR(inputs_.read(context, Device::kOnHost, &bags));
    tensorflow::OpInputList gradients, weights;
    if (!context->input_list("gradients", &gradients).ok() ||
        !context->input_list("weights", &weights).ok()) {
      return {Code::kInternal, "WeightGradients: inputs are missing"};
    }
    Device device(context);
    for (int f = 0; f < inputs_.features(); ++f) {
      Table& table = tables[inputs_.table_of(f)];
      SOK_RETURN_IF_ERROR(check_dimension(table, inputs_.dimension(f)));
      Tensor* output = nullptr;
      if (!context->allocate_output(f, weights[f].shape(), &output).ok()) {
        return resource_exhausted("WeightGradients: no memory for the output");
      }
      if (!inputs_.weighted(f)) {
        continue;  // nobody reads it
      }
      if (gradients[f].NumElements() != bags[f].bags * inputs_.dimension(f)) {
        return invalid_argument("feature ", f, ": the gradient's shape ",
                                gradients[f].shape().DebugString(), " is not [", bags[f].bags, ", ",
                                inputs_.dimension(f), "]");
      }
      SOK_RETURN_IF_ERROR(device.weight_gradients({&table, bags[f], {}, inputs_.max_norm(f)},
                                                  gradients[f].flat<float>().data(),
                                                  output->flat<float>().data()));
    }
    return {};
  }

  FeatureInputs inputs_;
};

REGISTER_KERNEL_BUILDER(Name("Sok>Lookup").Device(tensorflow::DEVICE_CPU), LookupOp<CpuDevice>);
REGISTER_KERNEL_BUILDER(Name("Sok>WeightGradients").Device(tensorflow::DEVICE_CPU),
                        WeightGradientsOp<CpuDevice>);
SOK_ON_GPU(REGISTER_KERNEL_BUILDER(
    Name("Sok>Lookup").Device(tensorflow::DEVICE_GPU).HostMemory("tables"), LookupOp<GpuDevice>));
SOK_ON_GPU(REGISTER_KERNEL_BUILDER(
    Name("Sok>WeightGradients").Device(tensorflow::DEVICE_GPU).HostMemory("tables"),
    WeightGradientsOp<GpuDevice>));

}  // namespace
}  // namespace sok
