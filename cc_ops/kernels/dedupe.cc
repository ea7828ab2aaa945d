// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
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

class DedupeOp final : public OpKernel {
 public:
  explicit DedupeOp(OpKernelConstruction* context) : OpKernel(context) {
    std::vector<std::int64_t> rows;
    std::vector<std::string> policies;
    int tables = 0, features = 0;
    OP_REQUIRES_OK(context, context->GetAttr("num_tables", &tables));
    OP_REQUIRES_OK(context, context->GetAttr("num_features", &features));
    OP_REQUIRES_OK(context, context->GetAttr("table_of", &table_of_));
    OP_REQUIRES_OK(context, context->GetAttr("rows", &rows));
    OP_REQUIRES_OK(context, context->GetAttr("out_of_range", &policies));
    const auto count = static_cast<std::size_t>(tables);
    OP_REQUIRES(context,
                rows.size() == count && policies.size() == count &&
                    table_of_.size() == static_cast<std::size_t>(features),
                absl::InvalidArgumentError(
                    "rows and out_of_range need one entry a table, table_of one a feature"));
    for (std::int32_t table : table_of_) {
      OP_REQUIRES(context, table >= 0 && table < tables,
                  absl::InvalidArgumentError("table_of names a table that is not there"));
    }
    for (std::size_t t = 0; t < count; ++t) {
      ranges_.push_back({rows[t], enum_of<OutOfRange>(kOutOfRangeNames, policies[t])});
    }
  }

  void Compute(OpKernelContext* context) override {
    run_op(context, [&] { return run(context); });
  }

 private:
  Status run(OpKernelContext* context) {
    tensorflow::OpInputList ids;
    if (!context->input_list("ids", &ids).ok()) return {Code::kInternal, "Dedupe: no ids"};
    const int tables = static_cast<int>(ranges_.size());
    std::vector<std::vector<cpu::DedupeFeature>> features(tables);
    std::vector<std::vector<int>> numbers(tables);
    for (int f = 0; f < ids.size(); ++f) {
      Tensor* slots = nullptr;
      SOK_RETURN_IF_ERROR(allocate(context, tables + f, ids[f].shape(), &slots));
      features[table_of_[f]].push_back({ids[f].flat<std::int64_t>().data(), ids[f].NumElements(),
                                        slots->flat<std::int64_t>().data()});
      numbers[table_of_[f]].push_back(f);
    }
    Tensor* refused = nullptr;
    SOK_RETURN_IF_ERROR(allocate(context, tables + ids.size(), TensorShape({4}), &refused));
    refused->flat<std::int64_t>().setConstant(-1);
    KernelExecutor executor(context);
    for (int t = 0; t < tables; ++t) {
      const cpu::Dedupe dedupe(executor, ranges_[t], features[t]);
      Tensor* keys = nullptr;
      SOK_RETURN_IF_ERROR(allocate(context, t, TensorShape({dedupe.count()}), &keys));
      dedupe.write(keys->flat<std::int64_t>().data());
      auto record = refused->flat<std::int64_t>();
      std::size_t feature = 0;
      std::int64_t position = 0;
      if (record(0) < 0 && dedupe.refused(&feature, &position)) {
        record(0) = t;
        record(1) = numbers[t][feature];
        record(2) = position;
        record(3) = features[t][feature].ids[position];
      }
    }
    return {};
  }

  std::vector<std::int32_t> table_of_;
  std::vector<IdRange> ranges_;
};

REGISTER_KERNEL_BUILDER(Name("Sok>Dedupe").Device(tensorflow::DEVICE_CPU), DedupeOp);

}  // namespace
}  // namespace sok
