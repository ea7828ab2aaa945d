// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/core/optimizer_spec.h"
#include "cc_ops/cpu/stages.h"
#include "cc_ops/kernels/op_boundary.h"
#include "cc_ops/kernels/table_resource.h"

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

class UpdateOp final : public OpKernel {
 public:
  explicit UpdateOp(OpKernelConstruction* context) : OpKernel(context) {
    std::vector<std::string> names, reaches;
    OP_REQUIRES_OK(context, context->GetAttr("num_tables", &num_tables_));
    OP_REQUIRES_OK(context, context->GetAttr("optimizers", &names));
    OP_REQUIRES_OK(context, context->GetAttr("reaches", &reaches));
    OP_REQUIRES_OK(context, context->GetAttr("unique", &unique_));
    const auto count = static_cast<std::size_t>(num_tables_);
    OP_REQUIRES(context,
                names.size() == count && reaches.size() == count && unique_.size() == count,
                absl::InvalidArgumentError("optimizers, reaches and unique need one entry a table"));
    for (const std::string& name : names) {
      const OptimizerSpec* spec = nullptr;
      OP_REQUIRES_OK(context, to_tensorflow(find_optimizer(name, &spec)));
      optimizers_.push_back(spec);
    }
    for (const std::string& reach : reaches) reaches_.push_back(enum_of<Reach>(kReachNames, reach));
  }

  void Compute(OpKernelContext* context) override {
    LockedTables tables;
    OP_REQUIRES_OK(context, tables.lock(context, "tables", true));
    run_op(context, [&] { return run(context, tables); });
  }

 private:
  Status run(OpKernelContext* context, const LockedTables& tables) {
    tensorflow::OpInputList keys, gradients, hyper;
    const tensorflow::Tensor *step, *scale, *apply;
    if (!context->input_list("keys", &keys).ok() ||
        !context->input_list("gradients", &gradients).ok() ||
        !context->input_list("hyper", &hyper).ok() || !context->input("step", &step).ok() ||
        !context->input("scale", &scale).ok() || !context->input("apply", &apply).ok()) {
      return {Code::kInternal, "Update: inputs are missing"};
    }
    if (!apply->flat<bool>()(0)) return {};
    std::vector<cpu::TableUpdate> updates;
    for (int t = 0; t < num_tables_; ++t) {
      cpu::TableUpdate update;
      update.table = &tables[t];
      update.optimizer = optimizers_[t];
      update.reach = reaches_[t];
      const auto values = hyper[t].flat<float>();
      update.hyper.assign(values.data(), values.data() + values.size());
      update.count = keys[t].NumElements();
      const std::int64_t dimension = update.table->config().dimension;
      if (gradients[t].dims() != 2 || gradients[t].dim_size(0) != update.count ||
          gradients[t].dim_size(1) != dimension) {
        return invalid_argument("table '", update.table->config().name, "': gradients of ",
                                update.count, " keys must have the shape [", update.count, ", ",
                                dimension, "], got ", gradients[t].shape().DebugString());
      }
      update.keys = keys[t].flat<std::int64_t>().data();
      update.gradients = gradients[t].flat<float>().data();
      update.unique = unique_[t];
      updates.push_back(std::move(update));
    }
    KernelExecutor executor(context);
    return cpu::update(executor, updates, step->flat<std::int64_t>()(0), scale->flat<float>()(0));
  }

  int num_tables_ = 0;
  std::vector<const OptimizerSpec*> optimizers_;
  std::vector<Reach> reaches_;
  std::vector<bool> unique_;
};

REGISTER_KERNEL_BUILDER(Name("Sok>Update").Device(tensorflow::DEVICE_CPU), UpdateOp);

}  // namespace
}  // namespace sok
