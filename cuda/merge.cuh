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

// Device memory of one op: arrays are asked for, then cut from one block.
class Arena {
 public:
  explicit Arena(Context& context) : context_(&context) {}

  // `*array` is set by allocate().
  template <typename T>
  void ask(std::int64_t count, T** array) {
    asked_.push_back({bytes_, [array](void* memory) { *array = static_cast<T*>(memory); }});
    const std::size_t bytes =
        static_cast<std::size_t>(std::max<std::int64_t>(1, count)) * sizeof(T);
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  Status allocate(const char* stage) {
    block_ = context_->allocate(bytes_);
    if (block_.data == nullptr) {
      return resource_exhausted(stage, ": no device memory: ", bytes_, " bytes asked for");
    }
    for (const auto& [offset, set] : asked_) set(block_.as<char>() + offset);
    return {};
  }

 private:
  static constexpr std::size_t kAlignment = 256;

  Context* context_;
  std::vector<std::pair<std::size_t, std::function<void(void*)>>> asked_;
  std::size_t bytes_ = 0;
  Buffer block_;
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
