// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_KERNELS_TABLE_RESOURCE_H_
#define SOK_KERNELS_TABLE_RESOURCE_H_

#include <algorithm>
#include <memory>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc_ops/core/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace sok {

// A table as a TensorFlow resource. Ops that only read hold the lock shared, all others alone.
template <typename Table>
class TableResource final : public tensorflow::ResourceBase {
 public:
  explicit TableResource(std::unique_ptr<Table> table) : table_(std::move(table)) {}

  std::string DebugString() const override { return "SOK table " + table_->config().name; }
  Table* table() const { return table_.get(); }
  std::shared_mutex& mutex() { return mutex_; }

 private:
  std::unique_ptr<Table> table_;
  std::shared_mutex mutex_;
};

// The tables of one op, locked together. Locks are taken in the order of addresses, so that two ops
// over the same tables cannot wait for each other.
template <typename Table>
class LockedTables {
 public:
  using Resource = TableResource<Table>;

  LockedTables() = default;
  LockedTables(const LockedTables&) = delete;
  LockedTables& operator=(const LockedTables&) = delete;
  ~LockedTables() {
    for (Resource* resource : locked_) {
      exclusive_ ? resource->mutex().unlock() : resource->mutex().unlock_shared();
    }
  }

  // Input `name` is a resource or a list of them.
  absl::Status lock(tensorflow::OpKernelContext* context, const char* name, bool exclusive) {
    tensorflow::OpInputList handles;
    TF_RETURN_IF_ERROR(context->input_list(name, &handles));
    exclusive_ = exclusive;
    for (int i = 0; i < handles.size(); ++i) {
      tensorflow::core::RefCountPtr<Resource> resource;
      TF_RETURN_IF_ERROR(tensorflow::LookupResource(
          context, handles[i].scalar<tensorflow::ResourceHandle>()(), &resource));
      resources_.push_back(std::move(resource));
    }
    for (const auto& resource : resources_) locked_.push_back(resource.get());
    std::sort(locked_.begin(), locked_.end());
    locked_.erase(std::unique(locked_.begin(), locked_.end()), locked_.end());
    for (Resource* resource : locked_) {
      exclusive ? resource->mutex().lock() : resource->mutex().lock_shared();
    }
    return absl::OkStatus();
  }

  // Goes from a shared lock to one alone; others may come in between.
  void lock_alone() {
    if (exclusive_) return;
    for (Resource* resource : locked_) resource->mutex().unlock_shared();
    exclusive_ = true;
    for (Resource* resource : locked_) resource->mutex().lock();
  }

  std::size_t size() const { return resources_.size(); }
  // An error if a table is there twice: then neither its rows nor its new keys would be one
  // thread's alone.
  Status check_different() const {
    for (std::size_t i = 0; i < resources_.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (resources_[i].get() != resources_[j].get()) continue;
        return invalid_argument("table '", (*this)[i].config().name,
                                "' is given twice in one update: add its gradients first");
      }
    }
    return {};
  }
  Table& operator[](std::size_t i) const { return *resources_[i]->table(); }

 private:
  std::vector<tensorflow::core::RefCountPtr<Resource>> resources_;
  std::vector<Resource*> locked_;
  bool exclusive_ = false;
};

}  // namespace sok

#endif  // SOK_KERNELS_TABLE_RESOURCE_H_
