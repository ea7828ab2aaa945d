// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "cc_ops/cpu/rank_stages.h"
#include "cc_ops/kernels/feature_inputs.h"
#include "cc_ops/kernels/op_boundary.h"

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class RouteBagsOp final : public OpKernel {
 public:
  explicit RouteBagsOp(OpKernelConstruction* context) : OpKernel(context), inputs_(context) {
    std::vector<std::int32_t> owners;
    std::vector<std::int64_t> rows;
    std::vector<std::string> policies;
    OP_REQUIRES_OK(context, context->GetAttr("ranks", &ranks_));
    OP_REQUIRES_OK(context, context->GetAttr("owners", &owners));
    OP_REQUIRES_OK(context, context->GetAttr("rows", &rows));
    OP_REQUIRES_OK(context, context->GetAttr("out_of_range", &policies));
    OP_REQUIRES_OK(context, context->GetAttr("keep_empty", &keep_empty_));
    const auto count = static_cast<std::size_t>(inputs_.tables());
    OP_REQUIRES(context, owners.size() == count && rows.size() == count && policies.size() == count,
                absl::InvalidArgumentError("owners, rows and out_of_range need one entry a table"));
    for (std::size_t t = 0; t < count; ++t) {
      OP_REQUIRES(context, owners[t] < ranks_,
                  absl::InvalidArgumentError(concat("table ", t, " belongs to rank ", owners[t],
                                                    ", but there are ", ranks_, " ranks")));
      tables_.push_back({{static_cast<std::uint32_t>(ranks_), owners[t], rows[t] >= 0},
                         {rows[t], enum_of<OutOfRange>(kOutOfRangeNames, policies[t])}});
    }
    for (int f = 0; f < inputs_.features(); ++f) weighted_ = weighted_ || inputs_.weighted(f);
  }

  void Compute(OpKernelContext* context) override {
    run_op(context, [&] { return run(context); });
  }

 private:
  Status run(OpKernelContext* context) {
    std::vector<Bags> bags;
    SOK_RETURN_IF_ERROR(inputs_.read(context, true, &bags));
    std::vector<cpu::RouteBagsFeature> features;
    for (int f = 0; f < inputs_.features(); ++f) {
      features.push_back({static_cast<std::size_t>(inputs_.table_of(f)), bags[f]});
    }
    KernelExecutor executor(context);
    cpu::RouteBags route(executor, static_cast<std::uint32_t>(ranks_), keep_empty_, tables_,
                         features);
    const std::vector<std::int64_t>& blocks = route.counts();
    std::int64_t total = 0;
    for (std::int64_t block : blocks) total += block;
    Tensor *buffer = nullptr, *counts = nullptr, *refused = nullptr, *sources = nullptr;
    SOK_RETURN_IF_ERROR(allocate(context, 0, TensorShape({total}), &buffer));
    SOK_RETURN_IF_ERROR(allocate(context, 1, TensorShape({ranks_, 2 * inputs_.tables()}), &counts));
    SOK_RETURN_IF_ERROR(allocate(context, 2, TensorShape({4}), &refused));
    SOK_RETURN_IF_ERROR(allocate(context, 3, TensorShape({weighted_ ? route.ids() : 0}), &sources));
    std::copy(blocks.begin(), blocks.end(), counts->flat<std::int64_t>().data());
    std::vector<std::int64_t*> targets;
    for (int t = 0; t < inputs_.tables(); ++t) {
      Tensor* target = nullptr;
      SOK_RETURN_IF_ERROR(allocate(
          context, 4 + t, TensorShape({route.parts(static_cast<std::size_t>(t))}), &target));
      targets.push_back(target->flat<std::int64_t>().data());
    }
    auto record = refused->flat<std::int64_t>();
    record.setConstant(-1);
    std::size_t feature = 0;
    std::int64_t position = 0;
    if (route.refused(&feature, &position)) {
      record(0) = static_cast<std::int64_t>(features[feature].table);
      record(1) = static_cast<std::int64_t>(feature);
      record(2) = position;
      record(3) = bags[feature].ids[position];
    }
    route.write(buffer->flat<std::int64_t>().data(), targets,
                weighted_ ? sources->flat<std::int64_t>().data() : nullptr);
    return {};
  }

  FeatureInputs inputs_;
  std::int64_t ranks_ = 1;
  bool keep_empty_ = false, weighted_ = false;
  std::vector<cpu::RouteBagsTable> tables_;
};

REGISTER_KERNEL_BUILDER(Name("Sok>RouteBags").Device(tensorflow::DEVICE_CPU), RouteBagsOp);

}  // namespace
}  // namespace sok
