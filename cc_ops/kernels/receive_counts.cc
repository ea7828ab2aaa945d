// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// What ranks tell each other before anything else of a lookup travels: all of them go on, or none.
#include <algorithm>
#include <string>
#include <vector>

#include "cc_ops/kernels/op_boundary.h"

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class ReceiveCountsOp final : public OpKernel {
 public:
  explicit ReceiveCountsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("columns", &columns_));
    OP_REQUIRES_OK(context, context->GetAttr("tables", &tables_));
    OP_REQUIRES_OK(context, context->GetAttr("rows", &rows_));
    OP_REQUIRES_OK(context, context->GetAttr("here", &here_));
    OP_REQUIRES_OK(context, context->GetAttr("lookup", &lookup_));
    OP_REQUIRES(context, tables_.size() == rows_.size(),
                absl::InvalidArgumentError("rows needs one entry a table"));
  }

  void Compute(OpKernelContext* context) override {
    run_op(context, [&]() -> Status {
      std::vector<const std::int64_t*> sent;
      SOK_RETURN_IF_ERROR(split(context->input(0), context->input(1), &sent));
      SOK_RETURN_IF_ERROR(check_lookups(context->input(1), sent));
      SOK_RETURN_IF_ERROR(check_ids(sent));
      Tensor* counts = nullptr;
      const auto ranks = static_cast<std::int64_t>(sent.size());
      SOK_RETURN_IF_ERROR(allocate(context, 0, TensorShape({ranks, columns_}), &counts));
      std::int64_t* out = counts->flat<std::int64_t>().data();
      for (const std::int64_t* numbers : sent) {
        out = std::copy_n(numbers + kCounts, columns_, out);
      }
      return {};
    });
  }

 private:
  // What a rank sends: see exchange_counts in sok/stages/exchange.py.
  enum Field { kTable, kFeature, kPosition, kId, kLookup, kCounts };

  // The numbers of each rank, of which there are kCounts at least.
  Status split(const Tensor& message, const Tensor& sizes,
               std::vector<const std::int64_t*>* sent) const {
    const auto each = sizes.flat<std::int64_t>();
    const std::int64_t* next = message.flat<std::int64_t>().data();
    std::int64_t left = message.NumElements();
    for (std::int64_t rank = 0; rank < each.size(); ++rank) {
      if (each(rank) < kCounts || each(rank) > left) {
        return invalid_argument("ReceiveCounts: ", each(rank), " numbers of rank ", rank, ", but ",
                                left, " are left");
      }
      sent->push_back(next);
      next += each(rank);
      left -= each(rank);
    }
    if (left == 0) return {};
    return invalid_argument("ReceiveCounts: ", left, " numbers are of no rank");
  }

  Status check_lookups(const Tensor& sizes, const std::vector<const std::int64_t*>& sent) const {
    const auto each = sizes.flat<std::int64_t>();
    for (std::size_t rank = 1; rank < sent.size(); ++rank) {
      if (sent[rank][kLookup] == sent[0][kLookup] && each(rank) == each(0)) continue;
      return invalid_argument(
          "rank ", rank, " does not make the same lookup as rank 0. On rank ", here_,
          " it is: ", lookup_,
          ". All ranks must create and look up the same tables, in one order and with one shape, "
          "type and mode, and exchange them in one way (\"auto\" is \"rows\" where no bag can "
          "have more than one id)");
    }
    if (sent.empty() || each(0) - kCounts == columns_) return {};
    return invalid_argument("ReceiveCounts: ", each(0) - kCounts, " counts, not ", columns_);
  }

  Status check_ids(const std::vector<const std::int64_t*>& sent) const {
    for (std::size_t rank = 0; rank < sent.size(); ++rank) {
      const std::int64_t table = sent[rank][kTable];
      if (table < 0 || table >= static_cast<std::int64_t>(tables_.size())) continue;
      return invalid_argument("table '", tables_[table], "': id ", sent[rank][kId], " at position ",
                              sent[rank][kPosition], " of rank ", rank,
                              " is out of range: the table has ", rows_[table],
                              " rows (pass out_of_range=\"zero\" or \"clip\" to accept such ids)");
    }
    return {};
  }

  std::int64_t columns_ = 0;
  std::vector<std::string> tables_;
  std::vector<std::int64_t> rows_;
  std::int64_t here_ = 0;
  std::string lookup_;
};

REGISTER_KERNEL_BUILDER(Name("Sok>ReceiveCounts").Device(tensorflow::DEVICE_CPU), ReceiveCountsOp);

}  // namespace
}  // namespace sok
