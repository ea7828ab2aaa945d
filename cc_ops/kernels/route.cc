// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "cc_ops/cpu/rank_stages.h"
#include "cc_ops/kernels/op_boundary.h"

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class RouteOp final : public OpKernel {
 public:
  explicit RouteOp(OpKernelConstruction* context) : OpKernel(context) {
    std::vector<std::int32_t> owners;
    std::vector<std::int64_t> rows;
    int tables = 0;
    OP_REQUIRES_OK(context, context->GetAttr("num_tables", &tables));
    OP_REQUIRES_OK(context, context->GetAttr("table_of", &table_of_));
    OP_REQUIRES_OK(context, context->GetAttr("ranks", &ranks_));
    OP_REQUIRES_OK(context, context->GetAttr("owners", &owners));
    OP_REQUIRES_OK(context, context->GetAttr("rows", &rows));
    const auto count = static_cast<std::size_t>(tables);
    OP_REQUIRES(context, owners.size() == count && rows.size() == count,
                absl::InvalidArgumentError("owners and rows need one entry a table"));
    for (std::size_t t = 0; t < count; ++t) {
      OP_REQUIRES(context, owners[t] < ranks_,
                  absl::InvalidArgumentError(concat("table ", t, " belongs to rank ", owners[t],
                                                    ", but there are ", ranks_, " ranks")));
      placements_.push_back({static_cast<std::uint32_t>(ranks_), owners[t], rows[t] >= 0});
    }
  }

  void Compute(OpKernelContext* context) override {
    run_op(context, [&] { return run(context); });
  }

 private:
  Status run(OpKernelContext* context) {
    tensorflow::OpInputList keys, slots;
    if (!context->input_list("keys", &keys).ok() || !context->input_list("slots", &slots).ok()) {
      return {Code::kInternal, "Route: inputs are missing"};
    }
    std::vector<cpu::RouteTable> tables;
    for (int t = 0; t < keys.size(); ++t) {
      tables.push_back(
          {placements_[t], keys[t].flat<std::int64_t>().data(), keys[t].NumElements()});
    }
    KernelExecutor executor(context);
    cpu::Route route(executor, static_cast<std::uint32_t>(ranks_), tables);
    Tensor *ids = nullptr, *counts = nullptr;
    SOK_RETURN_IF_ERROR(allocate(context, 0, TensorShape({route.total()}), &ids));
    SOK_RETURN_IF_ERROR(allocate(context, 1, TensorShape({ranks_, keys.size()}), &counts));
    std::copy(route.counts().begin(), route.counts().end(), counts->flat<std::int64_t>().data());
    std::vector<std::vector<std::int64_t>> positions(tables.size());
    std::vector<std::int64_t*> pointers;
    for (std::size_t t = 0; t < tables.size(); ++t) {
      positions[t].resize(tables[t].count);
      pointers.push_back(positions[t].data());
    }
    route.write(ids->flat<std::int64_t>().data(), pointers);
    for (int f = 0; f < slots.size(); ++f) {
      Tensor* routed = nullptr;
      SOK_RETURN_IF_ERROR(allocate(context, f + 2, slots[f].shape(), &routed));
      const std::vector<std::int64_t>& of = positions[table_of_[f]];
      const std::int64_t* in = slots[f].flat<std::int64_t>().data();
      std::int64_t* out = routed->flat<std::int64_t>().data();
      executor.parallel_for(slots[f].NumElements(), 3, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) out[i] = in[i] < 0 ? -1 : of[in[i]];
      });
    }
    return {};
  }

  std::int64_t ranks_ = 1;
  std::vector<std::int32_t> table_of_;
  std::vector<Placement> placements_;
};

REGISTER_KERNEL_BUILDER(Name("Sok>Route").Device(tensorflow::DEVICE_CPU), RouteOp);

}  // namespace
}  // namespace sok
