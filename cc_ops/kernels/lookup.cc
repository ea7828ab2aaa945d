// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/stages.h"
#include "cc_ops/kernels/feature_inputs.h"
#include "cc_ops/kernels/op_boundary.h"
#include "cc_ops/kernels/table_resource.h"

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

Status check_dimension(const cpu::Table& table, std::int64_t dimension) {
  if (table.config().dimension == dimension) return {};
  return invalid_argument("table '", table.config().name, "' has dimension ",
                          table.config().dimension, ", not ", dimension);
}

class LookupOp final : public OpKernel {
 public:
  explicit LookupOp(OpKernelConstruction* context) : OpKernel(context), inputs_(context) {
    OP_REQUIRES_OK(context, context->GetAttr("training", &training_));
    OP_REQUIRES_OK(context, context->GetAttr("output_types", &output_types_));
  }

  void Compute(OpKernelContext* context) override {
    LockedTables tables;
    OP_REQUIRES_OK(context, tables.lock(context, "tables", training_));
    run_op(context, [&] { return run(context, tables); });
  }

 private:
  Status run(OpKernelContext* context, const LockedTables& tables) {
    std::vector<Bags> bags;
    SOK_RETURN_IF_ERROR(inputs_.read(context, &bags));
    std::vector<cpu::LookupFeature> features;
    for (int f = 0; f < inputs_.features(); ++f) {
      cpu::Table& table = tables[inputs_.table_of(f)];
      SOK_RETURN_IF_ERROR(check_dimension(table, inputs_.dimension(f)));
      Tensor* output = nullptr;
      if (auto status = context->allocate_output(
              f, TensorShape({bags[f].bags, inputs_.dimension(f)}), &output);
          !status.ok()) {
        return resource_exhausted(std::string(status.message()));
      }
      features.push_back({&table,
                          bags[f],
                          {row_type_of(output_types_[f]), output->data()},
                          inputs_.max_norm(f)});
    }
    KernelExecutor executor(context);
    return cpu::lookup(executor, features, training_);
  }

  FeatureInputs inputs_;
  std::vector<tensorflow::DataType> output_types_;
  bool training_ = false;
};

class WeightGradientsOp final : public OpKernel {
 public:
  explicit WeightGradientsOp(OpKernelConstruction* context) : OpKernel(context), inputs_(context) {}

  void Compute(OpKernelContext* context) override {
    LockedTables tables;
    OP_REQUIRES_OK(context, tables.lock(context, "tables", false));
    run_op(context, [&] { return run(context, tables); });
  }

 private:
  Status run(OpKernelContext* context, const LockedTables& tables) {
    std::vector<Bags> bags;
    SOK_RETURN_IF_ERROR(inputs_.read(context, &bags));
    tensorflow::OpInputList gradients, weights;
    if (!context->input_list("gradients", &gradients).ok() ||
        !context->input_list("weights", &weights).ok()) {
      return {Code::kInternal, "WeightGradients: inputs are missing"};
    }
    KernelExecutor executor(context);
    for (int f = 0; f < inputs_.features(); ++f) {
      cpu::Table& table = tables[inputs_.table_of(f)];
      SOK_RETURN_IF_ERROR(check_dimension(table, inputs_.dimension(f)));
      Tensor* output = nullptr;
      if (!context->allocate_output(f, weights[f].shape(), &output).ok()) {
        return resource_exhausted("WeightGradients: no memory for the output");
      }
      if (!inputs_.weighted(f)) {
        output->flat<float>().setZero();
        continue;
      }
      if (gradients[f].NumElements() != bags[f].bags * inputs_.dimension(f)) {
        return invalid_argument("feature ", f, ": the gradient's shape ",
                                gradients[f].shape().DebugString(), " is not [", bags[f].bags, ", ",
                                inputs_.dimension(f), "]");
      }
      SOK_RETURN_IF_ERROR(cpu::weight_gradients(
          executor, {&table, bags[f], {}, inputs_.max_norm(f)}, gradients[f].flat<float>().data(),
          output->flat<float>().data()));
    }
    return {};
  }

  FeatureInputs inputs_;
};

REGISTER_KERNEL_BUILDER(Name("Sok>Lookup").Device(tensorflow::DEVICE_CPU), LookupOp);
REGISTER_KERNEL_BUILDER(Name("Sok>WeightGradients").Device(tensorflow::DEVICE_CPU),
                        WeightGradientsOp);

}  // namespace
}  // namespace sok
