// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/kernels/device.h"
#include "cc_ops/kernels/merge_inputs.h"

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

template <typename Device>
class MergeOp final : public OpKernel {
  using Table = typename Device::Table;

 public:
  explicit MergeOp(OpKernelConstruction* context) : OpKernel(context), inputs_(context) {
    OP_REQUIRES_OK(context, context->GetAttr("output_types", &output_types_));
  }

  void Compute(OpKernelContext* context) override {
    LockedTables<Table> tables;
    OP_REQUIRES_OK(context, tables.lock(context, "tables", !Device::kOnHost));
    // For the gradients of rows clipped to max_norm.
    lock_to_read<Device>(&tables);
    run_op(context, [&] { return run(context, tables); });
  }

 private:
  Status run(OpKernelContext* context, const LockedTables<Table>& tables) {
    std::vector<std::vector<typename Device::MergeFeature>> features;
    SOK_RETURN_IF_ERROR(read_merge_features<Device>(context, inputs_, output_types_, &features));
    Device device(context);
    for (int t = 0; t < inputs_.tables(); ++t) {
      const std::int64_t width = inputs_.table_dimension(t);
      const auto allocate = [&](std::int64_t count, Key** keys, float** sums) -> Status {
        Tensor *key_tensor = nullptr, *sum_tensor = nullptr;
        if (!context->allocate_output(t, TensorShape({count}), &key_tensor).ok() ||
            !context
                 ->allocate_output(inputs_.tables() + t, TensorShape({count, width}), &sum_tensor)
                 .ok()) {
          return resource_exhausted("Merge: no memory for ", count, " gradients of width ", width);
        }
        *keys = key_tensor->flat<std::int64_t>().data();
        *sums = sum_tensor->flat<float>().data();
        return {};
      };
      SOK_RETURN_IF_ERROR(
          device.merge(tables[t], features[t], inputs_.table_max_norm(t), allocate));
    }
    return {};
  }

  FeatureInputs inputs_;
  std::vector<tensorflow::DataType> output_types_;
};

REGISTER_KERNEL_BUILDER(Name("Sok>Merge").Device(tensorflow::DEVICE_CPU), MergeOp<CpuDevice>);
SOK_ON_GPU(REGISTER_KERNEL_BUILDER(
    Name("Sok>Merge").Device(tensorflow::DEVICE_GPU).HostMemory("tables"), MergeOp<GpuDevice>));

}  // namespace
}  // namespace sok
