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

class MergeOp final : public OpKernel {
 public:
  explicit MergeOp(OpKernelConstruction* context) : OpKernel(context), inputs_(context) {
    OP_REQUIRES_OK(context, context->GetAttr("output_types", &output_types_));
  }

  void Compute(OpKernelContext* context) override {
    LockedTables tables;
    OP_REQUIRES_OK(context, tables.lock(context, "tables", false));
    run_op(context, [&] { return run(context, tables); });
  }

 private:
  Status run(OpKernelContext* context, const LockedTables& tables) {
    std::vector<Bags> bags;
    SOK_RETURN_IF_ERROR(inputs_.read(context, &bags));
    tensorflow::OpInputList gradients;
    if (!context->input_list("gradients", &gradients).ok()) {
      return {Code::kInternal, "Merge: inputs are missing"};
    }
    std::vector<std::vector<cpu::MergeFeature>> features(inputs_.tables());
    for (int f = 0; f < inputs_.features(); ++f) {
      if (gradients[f].NumElements() != bags[f].bags * inputs_.dimension(f)) {
        return invalid_argument("feature ", f, ": the gradient's shape ",
                                gradients[f].shape().DebugString(), " is not [", bags[f].bags, ", ",
                                inputs_.dimension(f), "]");
      }
      features[inputs_.table_of(f)].push_back(
          {bags[f], {row_type_of(output_types_[f]), gradients[f].data()}});
    }
    KernelExecutor executor(context);
    for (int t = 0; t < inputs_.tables(); ++t) {
      const std::int64_t width = inputs_.table_dimension(t);
      cpu::Merge merge(executor, tables[t], features[t], width);
      if (merge.dropped()) {
        // The lookup has checked its ids; those of a gradient made by hand are checked here.
        for (const cpu::MergeFeature& feature : features[t]) {
          SOK_RETURN_IF_ERROR(tables[t].check_range(feature.bags.ids, feature.bags.ids_count()));
        }
      }
      Tensor *keys = nullptr, *sums = nullptr;
      if (!context->allocate_output(t, TensorShape({merge.count()}), &keys).ok() ||
          !context
               ->allocate_output(inputs_.tables() + t, TensorShape({merge.count(), width}), &sums)
               .ok()) {
        return resource_exhausted("Merge: no memory for ", merge.count(), " gradients of width ",
                                  width);
      }
      Key* key_data = keys->flat<std::int64_t>().data();
      merge.write(key_data, sums->flat<float>().data());
      if (inputs_.table_max_norm(t) > 0) {
        SOK_RETURN_IF_ERROR(cpu::max_norm_gradients(executor, tables[t], key_data, merge.count(),
                                                    inputs_.table_max_norm(t),
                                                    sums->flat<float>().data()));
      }
    }
    return {};
  }

  FeatureInputs inputs_;
  std::vector<tensorflow::DataType> output_types_;
};

REGISTER_KERNEL_BUILDER(Name("Sok>Merge").Device(tensorflow::DEVICE_CPU), MergeOp);

}  // namespace
}  // namespace sok
