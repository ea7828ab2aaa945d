// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CPU_MERGE_H_
#define SOK_CPU_MERGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc_ops/core/batch.h"
#include "cc_ops/core/status.h"
#include "cc_ops/cpu/executor.h"
#include "cc_ops/cpu/grouping.h"
#include "cc_ops/cpu/table.h"

namespace sok::cpu {

struct MergeFeature {
  Bags bags;
  Columns gradient;  // of the output: [bags, width]
};

// From the gradients of bags to one summed gradient a different key. Sums are added up in the order
// of the batch: the result does not depend on the number of threads. Nothing is summed until
// somebody asks.
class Merge {
 public:
  Merge(Executor& executor, const Table& table, const std::vector<MergeFeature>& features,
        std::int64_t width);

  std::int64_t count() const { return grouping_->count(); }
  const Grouping& grouping() const { return *grouping_; }
  // keys: [count], gradients: [count, width].
  void write(Executor& executor, Key* keys, float* gradients) const;

  // The summed gradient of a part's key number i, in `scratch` ([width]) or where it lies already;
  // keys are best asked for in order.
  const float* sum(const Grouping::Part& part, std::int64_t i, float* scratch) const;

 private:
  // The gradient of a feature's output.
  struct Rows {
    RowType type;
    const char* data;
    std::int64_t row_bytes;

    const char* row(std::int64_t bag) const { return data + bag * row_bytes; }
  };

  std::shared_ptr<const Grouping> grouping_;
  std::vector<Rows> gradients_;  // of each feature
  std::int64_t width_;
};

}  // namespace sok::cpu

#endif  // SOK_CPU_MERGE_H_
