// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CPU_EXECUTOR_H_
#define SOK_CPU_EXECUTOR_H_

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace sok::cpu {

// Who runs the loops: TensorFlow's thread pool in the ops, plain threads in the native tests.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual int threads() const = 0;
  // Calls body(begin, end) over [0, total) in disjoint pieces, perhaps at the same time, and
  // returns when all are done. `cost` is a guess of one iteration's time in nanoseconds.
  virtual void parallel_for(std::int64_t total, std::int64_t cost,
                            const std::function<void(std::int64_t, std::int64_t)>& body) = 0;
};

class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(int threads) : threads_(threads) {}
  int threads() const override { return threads_; }
  void parallel_for(std::int64_t total, std::int64_t,
                    const std::function<void(std::int64_t, std::int64_t)>& body) override {
    if (total <= 0) return;
    const std::int64_t pieces = total < threads_ ? total : threads_;
    std::vector<std::thread> helpers;
    for (std::int64_t i = 1; i < pieces; ++i) {
      helpers.emplace_back(body, total * i / pieces, total * (i + 1) / pieces);
    }
    body(0, total / pieces);
    for (std::thread& helper : helpers) helper.join();
  }

 private:
  int threads_;
};

}  // namespace sok::cpu

#endif  // SOK_CPU_EXECUTOR_H_
