// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "cc_ops/cpu/rank_stages.h"
#include "cc_ops/cpu/vector_ops.h"
#include "cc_ops/kernels/feature_inputs.h"
#include "cc_ops/kernels/op_boundary.h"

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// What both directions share: bags whose ids are positions in rows.
class CombineBase : public OpKernel {
 public:
  explicit CombineBase(OpKernelConstruction* context) : OpKernel(context), inputs_(context) {
    OP_REQUIRES_OK(context, context->GetAttr("output_types", &output_types_));
    OP_REQUIRES(context, output_types_.size() == static_cast<std::size_t>(inputs_.features()),
                absl::InvalidArgumentError("output_types needs one entry a feature"));
  }

  void Compute(OpKernelContext* context) final {
    run_op(context, [&] { return run(context); });
  }

 protected:
  virtual Status run(OpKernelContext* context) = 0;

  // Everything but the outputs.
  Status read(OpKernelContext* context, std::vector<cpu::CombineFeature>* features) const {
    tensorflow::OpInputList rows;
    std::vector<Bags> bags;
    if (!context->input_list("rows", &rows).ok()) return {Code::kInternal, "Combine: no rows"};
    if (rows.size() != inputs_.tables()) {
      return invalid_argument("Combine: ", rows.size(), " tensors of rows for ", inputs_.tables(),
                              " tables");
    }
    SOK_RETURN_IF_ERROR(inputs_.read(context, true, &bags));
    for (int f = 0; f < inputs_.features(); ++f) {
      const Tensor& table = rows[inputs_.table_of(f)];
      const std::int64_t width = inputs_.dimension(f);
      if (table.dims() != 2 || table.dim_size(1) != width) {
        return invalid_argument("rows of feature ", f, " must have the shape [n, ", width,
                                "], got ", table.shape().DebugString());
      }
      const std::int64_t count = table.dim_size(0);
      for (std::int64_t i = 0; i < bags[f].ids_count(); ++i) {
        if (bags[f].ids[i] < count) continue;
        return invalid_argument("feature ", f, ": position ", bags[f].ids[i], " in ", count,
                                " rows");
      }
      features->push_back({{row_type_of(table.dtype()), table.data()}, count, width, bags[f], {}});
    }
    return {};
  }

  FeatureInputs inputs_;
  std::vector<tensorflow::DataType> output_types_;
};

class CombineOp final : public CombineBase {
 public:
  using CombineBase::CombineBase;

 private:
  Status run(OpKernelContext* context) override {
    std::vector<cpu::CombineFeature> features;
    SOK_RETURN_IF_ERROR(read(context, &features));
    for (int f = 0; f < inputs_.features(); ++f) {
      Tensor* output = nullptr;
      SOK_RETURN_IF_ERROR(
          allocate(context, f, TensorShape({features[f].bags.bags, features[f].width}), &output));
      features[f].output = {row_type_of(output_types_[f]), output->data()};
    }
    KernelExecutor executor(context);
    cpu::combine(executor, features);
    return {};
  }
};

class CombineGradientsOp final : public CombineBase {
 public:
  using CombineBase::CombineBase;

 private:
  Status run(OpKernelContext* context) override {
    std::vector<cpu::CombineFeature> features;
    SOK_RETURN_IF_ERROR(read(context, &features));
    tensorflow::OpInputList gradients, weights, rows;
    if (!context->input_list("gradients", &gradients).ok() ||
        !context->input_list("weights", &weights).ok() ||
        !context->input_list("rows", &rows).ok()) {
      return {Code::kInternal, "CombineGradients: inputs are missing"};
    }
    std::vector<std::vector<cpu::CombineFeature>> of_table(inputs_.tables());
    KernelExecutor executor(context);
    for (int f = 0; f < inputs_.features(); ++f) {
      cpu::CombineFeature& feature = features[f];
      if (gradients[f].NumElements() != feature.bags.bags * feature.width) {
        return invalid_argument("feature ", f, ": the gradient's shape ",
                                gradients[f].shape().DebugString(), " is not [", feature.bags.bags,
                                ", ", feature.width, "]");
      }
      feature.output = {row_type_of(output_types_[f]), gradients[f].data()};
      of_table[inputs_.table_of(f)].push_back(feature);
      Tensor* weight_gradients = nullptr;
      SOK_RETURN_IF_ERROR(
          allocate(context, inputs_.tables() + f, weights[f].shape(), &weight_gradients));
      float* out = weight_gradients->flat<float>().data();
      if (!inputs_.weighted(f)) {
        weight_gradients->flat<float>().setZero();
        continue;
      }
      // Weight gradients are dot products: they want the output's gradient in float.
      const std::int64_t count = gradients[f].NumElements();
      std::vector<float> converted(feature.output.type == RowType::kFloat32 ? 0 : count);
      with_row_type(feature.output.type, [&](auto type) {
        const auto* g = static_cast<const decltype(type)*>(feature.output.data);
        feature.output = {RowType::kFloat32,
                          const_cast<float*>(cpu::direct_or_converted(g, count, converted.data()))};
      });
      cpu::combine_weight_gradients(executor, feature, out);
    }
    for (int t = 0; t < inputs_.tables(); ++t) {
      Tensor* row_gradients = nullptr;
      SOK_RETURN_IF_ERROR(allocate(context, t, rows[t].shape(), &row_gradients));
      cpu::combine_row_gradients(executor, of_table[t], rows[t].dim_size(0),
                                 inputs_.table_dimension(t), row_gradients->flat<float>().data());
    }
    return {};
  }
};

REGISTER_KERNEL_BUILDER(Name("Sok>Combine").Device(tensorflow::DEVICE_CPU), CombineOp);
REGISTER_KERNEL_BUILDER(Name("Sok>CombineGradients").Device(tensorflow::DEVICE_CPU),
                        CombineGradientsOp);

}  // namespace
}  // namespace sok
