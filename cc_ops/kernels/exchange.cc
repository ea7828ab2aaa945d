// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
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

// What both directions share: the layout of the buffer.
class ExchangeOp : public OpKernel {
 public:
  explicit ExchangeOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("types", &types_));
    OP_REQUIRES_OK(context, context->GetAttr("widths", &widths_));
    OP_REQUIRES_OK(context, context->GetAttr("carrier", &carrier_));
    OP_REQUIRES(context, types_.size() == widths_.size(),
                absl::InvalidArgumentError("widths needs one entry a part"));
    for (std::size_t t = 0; t < widths_.size(); ++t) {
      OP_REQUIRES(context, row_bytes(t) > 0 && row_bytes(t) % unit() == 0,
                  absl::InvalidArgumentError(concat("rows of ", row_bytes(t), " bytes are not ",
                                                    "whole elements of ", unit(), " bytes")));
    }
  }

  void Compute(OpKernelContext* context) final {
    run_op(context, [&] { return run(context); });
  }

 protected:
  virtual Status run(OpKernelContext* context) = 0;

  std::size_t parts() const { return types_.size(); }
  std::int64_t unit() const { return tensorflow::DataTypeSize(carrier_); }
  std::int64_t row_bytes(std::size_t t) const {
    return widths_[t] * tensorflow::DataTypeSize(types_[t]);
  }
  std::int64_t width(std::size_t t) const { return widths_[t]; }

  // Checks the counts; rows of each part and bytes for each rank.
  Status read_counts(const Tensor& counts, std::vector<std::int64_t>* rows,
                     std::vector<std::int64_t>* rank_bytes) const {
    if (counts.dims() != 2 || counts.dim_size(1) != static_cast<std::int64_t>(parts())) {
      return invalid_argument("counts must have the shape [ranks, ", parts(), "], got ",
                              counts.shape().DebugString());
    }
    rows->assign(parts(), 0);
    rank_bytes->assign(counts.dim_size(0), 0);
    const auto matrix = counts.matrix<std::int64_t>();
    for (std::int64_t rank = 0; rank < counts.dim_size(0); ++rank) {
      for (std::size_t t = 0; t < parts(); ++t) {
        const std::int64_t count = matrix(rank, static_cast<std::int64_t>(t));
        if (count < 0) return invalid_argument("counts must not be negative, got ", count);
        (*rows)[t] += count;
        (*rank_bytes)[rank] += count * row_bytes(t);
      }
    }
    return {};
  }

 private:
  std::vector<tensorflow::DataType> types_;
  std::vector<std::int64_t> widths_;
  tensorflow::DataType carrier_;
};

class InterleaveOp final : public ExchangeOp {
 public:
  using ExchangeOp::ExchangeOp;

 private:
  Status run(OpKernelContext* context) override {
    const Tensor& counts = context->input(static_cast<int>(parts()));
    std::vector<std::int64_t> rows, rank_bytes;
    SOK_RETURN_IF_ERROR(read_counts(counts, &rows, &rank_bytes));
    std::vector<cpu::ExchangePart> sources;
    for (std::size_t t = 0; t < parts(); ++t) {
      const Tensor& part = context->input(static_cast<int>(t));
      if (part.NumElements() != rows[t] * width(t)) {
        return invalid_argument("part ", t, " must have the shape [", rows[t], ", ", width(t),
                                "], got ", part.shape().DebugString());
      }
      sources.push_back({static_cast<char*>(part.data()), row_bytes(t)});
    }
    Tensor *buffer = nullptr, *splits = nullptr;
    SOK_RETURN_IF_ERROR(allocate(context, 1, TensorShape({counts.dim_size(0)}), &splits));
    std::int64_t total = 0;
    for (std::int64_t rank = 0; rank < counts.dim_size(0); ++rank) {
      splits->flat<std::int64_t>()(rank) = rank_bytes[rank] / unit();
      total += rank_bytes[rank] / unit();
    }
    SOK_RETURN_IF_ERROR(allocate(context, 0, TensorShape({total}), &buffer));
    KernelExecutor executor(context);
    cpu::interleave(executor, sources, counts.flat<std::int64_t>().data(), counts.dim_size(0),
                    static_cast<char*>(buffer->data()));
    return {};
  }
};

class DeinterleaveOp final : public ExchangeOp {
 public:
  using ExchangeOp::ExchangeOp;

 private:
  Status run(OpKernelContext* context) override {
    const Tensor& buffer = context->input(0);
    const Tensor& counts = context->input(1);
    std::vector<std::int64_t> rows, rank_bytes;
    SOK_RETURN_IF_ERROR(read_counts(counts, &rows, &rank_bytes));
    std::int64_t total = 0;
    for (std::int64_t bytes : rank_bytes) total += bytes / unit();
    if (buffer.NumElements() != total) {
      return invalid_argument("counts ask for ", total, " elements, but the buffer has ",
                              buffer.NumElements());
    }
    std::vector<cpu::ExchangePart> targets;
    for (std::size_t t = 0; t < parts(); ++t) {
      Tensor* part = nullptr;
      SOK_RETURN_IF_ERROR(
          allocate(context, static_cast<int>(t), TensorShape({rows[t], width(t)}), &part));
      targets.push_back({static_cast<char*>(part->data()), row_bytes(t)});
    }
    KernelExecutor executor(context);
    cpu::deinterleave(executor, static_cast<const char*>(buffer.data()),
                      counts.flat<std::int64_t>().data(), counts.dim_size(0), targets);
    return {};
  }
};

REGISTER_KERNEL_BUILDER(Name("Sok>Interleave").Device(tensorflow::DEVICE_CPU), InterleaveOp);
REGISTER_KERNEL_BUILDER(Name("Sok>Deinterleave").Device(tensorflow::DEVICE_CPU), DeinterleaveOp);

}  // namespace
}  // namespace sok
