// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// What the merge has in common with the merge that updates at once.
#ifndef SOK_CUDA_MERGE_CUH_
#define SOK_CUDA_MERGE_CUH_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc_ops/core/batch.h"
#include "cuda/context.h"
#include "cuda/table.h"

namespace sok::cuda {

// The bag that id number i belongs to.
__device__ inline std::int64_t bag_of(const Bags& bags, std::int64_t i) {
  if (bags.row_splits == nullptr) return i / bags.hotness;
  std::int64_t low = 0, high = bags.bags;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    if (bags.row_splits[middle] <= i) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Device memory of one op, cut into arrays.
class Arena {
 public:
  explicit Arena(Context& context) : context_(context) {}

  template <typename T>
  T* take(std::int64_t count) {
    buffers_.push_back(
        context_.allocate(static_cast<std::size_t>(std::max<std::int64_t>(1, count)) * sizeof(T)));
    failed_ = failed_ || buffers_.back().data == nullptr;
    return buffers_.back().as<T>();
  }
  bool failed() const { return failed_; }

 private:
  Context& context_;
  std::vector<Buffer> buffers_;
  bool failed_ = false;
};

// An op that ends early leaves zeros in the tags of its tables' rows.
class TagsGuard {
 public:
  explicit TagsGuard(Context& context) : context_(context) {}
  TagsGuard(const TagsGuard&) = delete;
  TagsGuard& operator=(const TagsGuard&) = delete;
  ~TagsGuard() {
    // The op reports an error already.
    for (Table* table : tables_) static_cast<void>(table->zero_tags(context_));
  }
  void add(Table* table) { tables_.push_back(table); }
  void done() { tables_.clear(); }

 private:
  Context& context_;
  std::vector<Table*> tables_;
};

}  // namespace sok::cuda

#endif  // SOK_CUDA_MERGE_CUH_
