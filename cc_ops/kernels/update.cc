// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/core/optimizer_spec.h"
#include "cc_ops/kernels/device.h"

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

template <typename Device>
class UpdateOp final : public OpKernel {
  using Table = typename Device::Table;

 public:
  explicit UpdateOp(OpKernelConstruction* context) : OpKernel(context) {
    std::vector<std::string> names, reaches;
    OP_REQUIRES_OK(context, context->GetAttr("num_tables", &num_tables_));
    OP_REQUIRES_OK(context, context->GetAttr("optimizers", &names));
    OP_REQUIRES_OK(context, context->GetAttr("reaches", &reaches));
    OP_REQUIRES_OK(context, context->GetAttr("unique", &unique_));
    OP_REQUIRES_OK(context, context->GetAttr("initials", &initials_));
    const auto count = static_cast<std::size_t>(num_tables_);
    OP_REQUIRES(context,
                names.size() == count && reaches.size() == count && unique_.size() == count &&
                    initials_.size() == count,
                absl::InvalidArgumentError(
                    "optimizers, reaches, unique and initials need one entry a table"));
    for (const std::string& name : names) {
      const OptimizerSpec* spec = nullptr;
      OP_REQUIRES_OK(context, to_tensorflow(find_optimizer(name, &spec)));
      optimizers_.push_back(spec);
    }
    for (const std::string& reach : reaches) reaches_.push_back(enum_of<Reach>(kReachNames, reach));
  }

  void Compute(OpKernelContext* context) override {
    LockedTables<Table> tables;
    OP_REQUIRES_OK(context, tables.lock(context, "tables", true));
    run_op(context, [&] { return run(context, tables); });
  }

 private:
  Status run(OpKernelContext* context, const LockedTables<Table>& tables) {
    SOK_RETURN_IF_ERROR(tables.check_different());
    tensorflow::OpInputList keys, gradients, hyper;
    const tensorflow::Tensor *iterations, *scale, *apply;
    if (!context->input_list("keys", &keys).ok() ||
        !context->input_list("gradients", &gradients).ok() ||
        !context->input_list("hyper", &hyper).ok() ||
        !context->input("iterations", &iterations).ok() || !context->input("scale", &scale).ok() ||
        !context->input("apply", &apply).ok()) {
      return {Code::kInternal, "Update: inputs are missing"};
    }
    std::vector<UpdateRequest> requests;
    for (int t = 0; t < num_tables_; ++t) {
      const TableConfig& config = tables[t].config();
      const std::int64_t count = keys[t].NumElements();
      if (gradients[t].dims() != 2 || gradients[t].dim_size(0) != count ||
          gradients[t].dim_size(1) != config.dimension) {
        return invalid_argument("table '", config.name, "': gradients of ", count,
                                " keys must have the shape [", count, ", ", config.dimension,
                                "], got ", gradients[t].shape().DebugString());
      }
      SOK_RETURN_IF_ERROR(check_hyper(*optimizers_[t], hyper[t].NumElements()));
      requests.push_back({optimizers_[t], reaches_[t], &keys[t], &gradients[t], &hyper[t],
                          initials_[t], unique_[t]});
    }
    return Device(context).update(tables, requests, {iterations, scale, apply});
  }

  int num_tables_ = 0;
  std::vector<const OptimizerSpec*> optimizers_;
  std::vector<Reach> reaches_;
  std::vector<bool> unique_;
  std::vector<float> initials_;
};

REGISTER_KERNEL_BUILDER(Name("Sok>Update").Device(tensorflow::DEVICE_CPU), UpdateOp<CpuDevice>);
SOK_ON_GPU(REGISTER_KERNEL_BUILDER(
    Name("Sok>Update").Device(tensorflow::DEVICE_GPU).HostMemory("tables"), UpdateOp<GpuDevice>));

}  // namespace
}  // namespace sok
