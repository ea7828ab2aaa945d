// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/core/optimizer_spec.h"
#include "cc_ops/kernels/merge_inputs.h"

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

template <typename Device>
class MergeUpdateOp final : public OpKernel {
  using Table = typename Device::Table;

 public:
  explicit MergeUpdateOp(OpKernelConstruction* context) : OpKernel(context), inputs_(context) {
    std::vector<std::string> names;
    OP_REQUIRES_OK(context, context->GetAttr("output_types", &output_types_));
    OP_REQUIRES_OK(context, context->GetAttr("optimizers", &names));
    OP_REQUIRES_OK(context, context->GetAttr("initials", &initials_));
    const auto tables = static_cast<std::size_t>(inputs_.tables());
    OP_REQUIRES(context, names.size() == tables && initials_.size() == tables,
                absl::InvalidArgumentError("optimizers and initials need one entry a table"));
    for (const std::string& name : names) {
      const OptimizerSpec* spec = nullptr;
      OP_REQUIRES_OK(context, to_tensorflow(find_optimizer(name, &spec)));
      optimizers_.push_back(spec);
    }
  }

  void Compute(OpKernelContext* context) override {
    LockedTables<Table> tables;
    OP_REQUIRES_OK(context, tables.lock(context, "tables", true));
    run_op(context, [&] { return run(context, tables); });
  }

 private:
  Status run(OpKernelContext* context, const LockedTables<Table>& tables) {
    SOK_RETURN_IF_ERROR(tables.check_different());
    std::vector<std::vector<typename Device::MergeFeature>> features;
    SOK_RETURN_IF_ERROR(read_merge_features<Device>(context, inputs_, output_types_, &features));
    tensorflow::OpInputList hyper;
    StepTensors scalars{};
    if (!context->input_list("hyper", &hyper).ok() ||
        !context->input("iterations", &scalars.iterations).ok() ||
        !context->input("scale", &scalars.scale).ok() ||
        !context->input("apply", &scalars.apply).ok()) {
      return {Code::kInternal, "MergeUpdate: inputs are missing"};
    }
    std::vector<UpdateRequest> requests(tables.size());
    for (std::size_t t = 0; t < tables.size(); ++t) {
      SOK_RETURN_IF_ERROR(check_hyper(*optimizers_[t], hyper[t].NumElements()));
      requests[t].optimizer = optimizers_[t];
      requests[t].hyper = &hyper[t];
      requests[t].initial = initials_[t];
    }
    return Device(context).merge_update(tables, features, requests, scalars);
  }

  FeatureInputs inputs_;
  std::vector<tensorflow::DataType> output_types_;
  std::vector<const OptimizerSpec*> optimizers_;
  std::vector<float> initials_;
};

REGISTER_KERNEL_BUILDER(Name("Sok>MergeUpdate").Device(tensorflow::DEVICE_CPU),
                        MergeUpdateOp<CpuDevice>);
SOK_ON_GPU(REGISTER_KERNEL_BUILDER(
    Name("Sok>MergeUpdate").Device(tensorflow::DEVICE_GPU).HostMemory("tables"),
    MergeUpdateOp<GpuDevice>));

}  // namespace
}  // namespace sok
