// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Where the library meets TensorFlow: its status, its threads, its types.
#ifndef SOK_KERNELS_OP_BOUNDARY_H_
#define SOK_KERNELS_OP_BOUNDARY_H_

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "cc_ops/core/status.h"
#include "cc_ops/core/types.h"
#include "cc_ops/cpu/executor.h"
#include "cc_ops/kernels/stage_stats.h"
#include "tensorflow/core/framework/op_kernel.h"

#ifdef SOK_WITH_CUDA
#include "cuda/context.h"
#endif

namespace sok {

inline absl::Status to_tensorflow(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return absl::OkStatus();
    case Code::kInvalidArgument:
      return absl::InvalidArgumentError(status.message());
    case Code::kNotFound:
      return absl::NotFoundError(status.message());
    case Code::kResourceExhausted:
      return absl::ResourceExhaustedError(status.message());
    case Code::kFailedPrecondition:
      return absl::FailedPreconditionError(status.message());
    case Code::kInternal:
      break;
  }
  return absl::InternalError(status.message());
}

// Kernels that the calling thread has launched on GPUs.
#ifdef SOK_WITH_CUDA
inline std::int64_t kernels_launched() { return cuda::kernels_launched(); }
#else
inline std::int64_t kernels_launched() { return 0; }
#endif

// Runs an op's body, `Status body()`. No exception passes this point: running out of memory becomes
// an error of the op, and the process lives.
template <typename Body>
void run_uncounted(tensorflow::OpKernelContext* context, Body&& body) {
  Status status;
  try {
    status = body();
  } catch (const std::bad_alloc&) {
    status = resource_exhausted(context->op_kernel().type_string(), ": out of host memory");
  } catch (const std::exception& error) {
    status = {Code::kInternal, concat(context->op_kernel().type_string(), ": ", error.what())};
  }
  if (!status.ok()) context->CtxFailure(to_tensorflow(status));
}

// The same for a stage, which the statistics count.
template <typename Body>
void run_op(tensorflow::OpKernelContext* context, Body&& body) {
  const StageTimer timer;
  const std::int64_t launched = kernels_launched();
  run_uncounted(context, std::forward<Body>(body));
  StageCount count;
  count.calls = 1;
  count.seconds = timer.seconds();
  count.gpu_calls = context->device()->attributes().device_type() == "GPU";
  count.gpu_kernels = kernels_launched() - launched;
  count_stage(context->op_kernel().type_string(), count);
}

// A fresh output tensor.
inline Status allocate(tensorflow::OpKernelContext* context, int output,
                       const tensorflow::TensorShape& shape, tensorflow::Tensor** tensor) {
  if (auto status = context->allocate_output(output, shape, tensor); !status.ok()) {
    return resource_exhausted(std::string(status.message()));
  }
  return {};
}

// TensorFlow's own threads run the library's loops. The caller works too, and waits only for pieces
// that somebody has begun: ops that use up the pool cannot wait for each other.
class KernelExecutor final : public cpu::Executor {
 public:
  using Body = std::function<void(std::int64_t, std::int64_t)>;

  explicit KernelExecutor(tensorflow::OpKernelContext* context)
      : workers_(context->device()->tensorflow_cpu_worker_threads()) {}

  int threads() const override { return workers_->num_threads; }

  void parallel_for(std::int64_t total, std::int64_t cost, const Body& body) override {
    if (total <= 0) return;
    // Four pieces a thread even out their times; a piece of less than 20 us costs more to start
    // than it saves.
    const std::int64_t work = total * std::max<std::int64_t>(cost, 1) / 20000;
    const std::int64_t pieces = std::min({4 * std::int64_t{threads()}, work, total});
    if (threads() == 1 || pieces <= 1) return body(0, total);
    std::shared_ptr<Round> round;
    try {
      round = std::make_shared<Round>(total, pieces, body);
      for (std::int64_t i = 1; i < std::min<std::int64_t>(threads(), pieces); ++i) {
        workers_->workers->Schedule([round] { round->work(); });
      }
    } catch (const std::bad_alloc&) {
      // Without memory for more threads, with those that there are: loops that change rows rely on it.
      if (round == nullptr) return body(0, total);
    }
    round->work();
    round->wait();
  }

 private:
  struct Round {
    Round(std::int64_t total_, std::int64_t pieces_, const Body& body_)
        : total(total_), pieces(pieces_), body(body_) {}

    void work() {
      for (std::int64_t i = next++; i < pieces; i = next++) {
        try {
          body(total * i / pieces, total * (i + 1) / pieces);
        } catch (...) {
          std::lock_guard<std::mutex> lock(mutex);
          error = std::current_exception();
        }
        std::lock_guard<std::mutex> lock(mutex);
        if (++done == pieces) finished.notify_all();
      }
    }
    void wait() {
      std::unique_lock<std::mutex> lock(mutex);
      finished.wait(lock, [this] { return done == pieces; });
      if (error) std::rethrow_exception(error);
    }

    const std::int64_t total, pieces;
    const Body& body;  // lives until wait() returns; nobody calls it later
    std::atomic<std::int64_t> next{0};
    std::mutex mutex;
    std::condition_variable finished;
    std::int64_t done = 0;
    std::exception_ptr error;
  };

  const tensorflow::DeviceBase::CpuWorkerThreads* workers_;
};

inline RowType row_type_of(tensorflow::DataType type) {
  switch (type) {
    case tensorflow::DT_HALF:
      return RowType::kFloat16;
    case tensorflow::DT_BFLOAT16:
      return RowType::kBFloat16;
    default:
      return RowType::kFloat32;
  }
}

// The position of `name` in an enumeration's list of names; ops check names before this.
template <typename Enum, std::size_t Count>
Enum enum_of(const char* const (&names)[Count], const std::string& name) {
  for (std::size_t i = 0; i < Count; ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
  }
  return static_cast<Enum>(0);
}

}  // namespace sok

#endif  // SOK_KERNELS_OP_BOUNDARY_H_
