// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc_ops/kernels/collective_watch.h"
#include "cc_ops/kernels/op_boundary.h"
#include "cc_ops/kernels/stage_stats.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::FunctionLibraryRuntime;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// A body on its way. It may outlive the op, if that has given up waiting: it holds all that the
// body needs, and touches the op's context only if it ends first.
class Call final : public WatchedCollective {
 public:
  Call(OpKernelContext* context, AsyncOpKernel::DoneCallback done, std::string name,
       std::string stage, double timeout)
      : context_(context),
        done_(std::move(done)),
        name_(std::move(name)),
        stage_(std::move(stage)),
        timeout_(timeout) {}

  void begin(std::shared_ptr<Call> self, FunctionLibraryRuntime* library,
             FunctionLibraryRuntime::Handle body, const std::vector<Tensor>& arguments,
             StageCount sent) {
    sent_ = sent;
    step_ = begin_collective(name_, timeout_, self);
    FunctionLibraryRuntime::Options options(context_->step_id());
    options.create_rendezvous = true;
    options.cancellation_manager = &cancellation_;
    library->Run(options, body, arguments, &results_,
                 [self](const absl::Status& status) { self->finish(status); });
  }

  void on_timeout() override {
    if (finished_.exchange(true)) return;
    fail(absl::StatusCode::kDeadlineExceeded,
         concat("no answer within ", timeout_, " s (SOK_COMM_TIMEOUT)"));
  }

 private:
  void finish(const absl::Status& status) {
    if (finished_.exchange(true)) return;
    if (!status.ok()) return fail(status.code(), std::string(status.message()));
    end_collective(this);
    sent_.calls = 1;
    sent_.seconds = timer_.seconds();
    count_stage(stage_, sent_);
    for (std::size_t i = 0; i < results_.size(); ++i) {
      context_->set_output(static_cast<int>(i), results_[i]);
    }
    done_();
  }

  void fail(absl::StatusCode code, const std::string& reason) {
    std::string message = concat("collective '", name_, "' failed in its step ", step_, " after ",
                                 timer_.seconds(), " s: ", reason);
    if (const std::string others = explain_failure(name_); !others.empty()) {
      message += "\n" + others;
    }
    end_collective(this);
    context_->SetStatus(absl::Status(code, message));
    done_();
  }

  OpKernelContext* context_;
  AsyncOpKernel::DoneCallback done_;
  std::string name_, stage_;
  double timeout_;
  std::int64_t step_ = 0;
  StageCount sent_;
  StageTimer timer_;
  std::atomic<bool> finished_{false};
  std::vector<Tensor> results_;
  tensorflow::CancellationManager cancellation_;
};

class CollectiveOp final : public AsyncOpKernel {
 public:
  explicit CollectiveOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("body", &body_));
    OP_REQUIRES_OK(context, context->GetAttr("collective", &collective_));
    OP_REQUIRES_OK(context, context->GetAttr("stage", &stage_));
    OP_REQUIRES_OK(context, context->GetAttr("rank", &rank_));
    OP_REQUIRES_OK(context, context->GetAttr("ranks", &ranks_));
    OP_REQUIRES_OK(context, context->GetAttr("sends", &sends_));
    OP_REQUIRES_OK(context, context->GetAttr("timeout", &timeout_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    FunctionLibraryRuntime* library = context->function_library();
    OP_REQUIRES_ASYNC(context, library != nullptr,
                      absl::InternalError("Sok>Collective: there is no function library"), done);
    OP_REQUIRES_ASYNC(context, sends_ != "splits" || context->num_inputs() > 2,
                      absl::InvalidArgumentError("Sok>Collective: there are no splits"), done);
    FunctionLibraryRuntime::Handle body;
    OP_REQUIRES_OK_ASYNC(
        context, library->Instantiate(body_.name(), tensorflow::AttrSlice(&body_.attr()), &body),
        done);
    std::vector<Tensor> arguments;
    for (int i = 1; i < context->num_inputs(); ++i) arguments.push_back(context->input(i));
    const StageCount sent = sent_by(arguments);
    auto call = std::make_shared<Call>(context, std::move(done), collective_, stage_, timeout_);
    call->begin(call, library, body, arguments, sent);
  }

 private:
  StageCount sent_by(const std::vector<Tensor>& arguments) const {
    StageCount count;
    const Tensor& tensor = arguments[0];
    const std::int64_t rows = tensor.dims() == 0 ? 1 : tensor.dim_size(0);
    const std::int64_t row_bytes =
        rows > 0 ? static_cast<std::int64_t>(tensor.TotalBytes()) / rows : 0;
    if (sends_ == "once") {
      count.sent_rows = rows;
    } else if (sends_ != "nothing") {
      count.sent_bytes_to.assign(ranks_, 0);
      for (std::int64_t rank = 0; rank < ranks_; ++rank) {
        if (rank == rank_) continue;
        const std::int64_t to = rows_to(rank, rows, arguments);
        count.sent_rows += to;
        count.sent_bytes_to[rank] = to * row_bytes;
      }
    }
    count.sent_bytes = count.sent_rows * row_bytes;
    return count;
  }

  // How many of the first input's slices another rank gets.
  std::int64_t rows_to(std::int64_t rank, std::int64_t rows,
                       const std::vector<Tensor>& arguments) const {
    if (sends_ == "shares") return rows / ranks_ + (rank < rows % ranks_ ? 1 : 0);
    if (sends_ == "all") return rows;
    const Tensor& splits = arguments[1];
    return rank < splits.NumElements() ? splits.flat<std::int64_t>()(rank) : 0;
  }

  tensorflow::NameAttrList body_;
  std::string collective_, stage_, sends_;
  std::int64_t rank_ = 0, ranks_ = 1;
  float timeout_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("Sok>Collective").Device(tensorflow::DEVICE_CPU), CollectiveOp);

}  // namespace
}  // namespace sok
