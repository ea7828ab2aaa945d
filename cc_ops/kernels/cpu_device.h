// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The CPU under an op: tables in host memory, and their stages on the op's threads.
#ifndef SOK_KERNELS_CPU_DEVICE_H_
#define SOK_KERNELS_CPU_DEVICE_H_

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc_ops/cpu/catch_up.h"
#include "cc_ops/cpu/snapshot.h"
#include "cc_ops/cpu/stages.h"
#include "cc_ops/kernels/op_boundary.h"
#include "cc_ops/kernels/table_resource.h"
#include "cc_ops/kernels/update_request.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

class CpuDevice {
 public:
  using Table = cpu::Table;
  using LookupFeature = cpu::LookupFeature;
  using MergeFeature = cpu::MergeFeature;
  using Snapshot = cpu::Snapshot;
  // Whether the host may read the op's inputs.
  static constexpr bool kOnHost = true;

  explicit CpuDevice(tensorflow::OpKernelContext* context)
      : context_(context), executor_(context) {}

  Status create(TableConfig config, std::unique_ptr<Table>* table) {
    const Initializer initializer = config.initializer;
    SOK_RETURN_IF_ERROR(Table::create(std::move(config), cpu::page_allocator(), table));
    // Fresh memory is zero already.
    const bool zeros = initializer.kind == InitKind::kConstant && initializer.a == 0.0f;
    if ((*table)->config().is_static() && !zeros) (*table)->initialize_static(executor_);
    return {};
  }

  Status lookup(const std::vector<LookupFeature>& features, bool insert) {
    if (!insert) return cpu::lookup(executor_, features, insert);
    // The op's inputs, which nobody writes to while they are held. Not the tables: they would hold
    // themselves.
    auto inputs = std::make_shared<std::vector<tensorflow::Tensor>>();
    for (int i = 0; i < context_->num_inputs(); ++i) {
      if (context_->input_dtype(i) != tensorflow::DT_RESOURCE)
        inputs->push_back(context_->input(i));
    }
    return cpu::lookup(executor_, features, insert, std::move(inputs));
  }
  Status weight_gradients(const LookupFeature& feature, const float* output_gradient,
                          float* gradients) {
    return cpu::weight_gradients(executor_, feature, output_gradient, gradients);
  }

  template <typename Allocate>
  Status merge(Table& table, const std::vector<MergeFeature>& features, float max_norm,
               Allocate&& allocate) {
    cpu::Merge merge(executor_, table, features, table.config().dimension);
    SOK_RETURN_IF_ERROR(merge.grouping().check());
    Key* keys = nullptr;
    float* gradients = nullptr;
    SOK_RETURN_IF_ERROR(allocate(merge.count(), &keys, &gradients));
    merge.write(executor_, keys, gradients);
    if (max_norm <= 0) return {};
    return cpu::max_norm_gradients(executor_, table, keys, merge.count(), max_norm, gradients);
  }

  // See cpu/catch_up.h.
  static bool lags(const Table& table) { return cpu::lags(table); }
  Status catch_up(Table& table) {
    cpu::catch_up(executor_, table);
    return {};
  }

  Status update(const LockedTables<Table>& tables, const std::vector<UpdateRequest>& requests,
                const StepTensors& scalars) {
    if (!scalars.apply->flat<bool>()(0)) return {};
    std::vector<cpu::TableUpdate> updates;
    for (std::size_t t = 0; t < requests.size(); ++t) {
      const UpdateRequest& request = requests[t];
      const auto hyper = request.hyper->flat<float>();
      updates.push_back({&tables[t],
                         request.optimizer,
                         {hyper.data(), hyper.data() + hyper.size()},
                         request.reach,
                         request.keys->flat<std::int64_t>().data(),
                         request.gradients->flat<float>().data(),
                         request.keys->NumElements(),
                         request.unique});
    }
    return cpu::update(executor_, updates, scalars.iterations->flat<std::int64_t>()(0) + 1,
                       scalars.scale->flat<float>()(0));
  }

  Status merge_update(const LockedTables<Table>& tables,
                      const std::vector<std::vector<MergeFeature>>& features,
                      const std::vector<UpdateRequest>& requests, const StepTensors& scalars) {
    if (!scalars.apply->flat<bool>()(0)) return {};
    std::vector<cpu::MergeUpdate> updates;
    for (std::size_t t = 0; t < requests.size(); ++t) {
      const auto hyper = requests[t].hyper->flat<float>();
      updates.push_back({&tables[t],
                         requests[t].optimizer,
                         {hyper.data(), hyper.data() + hyper.size()},
                         features[t]});
    }
    return cpu::merge_update(executor_, updates, scalars.iterations->flat<std::int64_t>()(0) + 1,
                             scalars.scale->flat<float>()(0));
  }

  Status hyper_parameters(const HyperParameters& parameters, float* out) {
    for (int i = 0; i < parameters.count; ++i) out[i] = parameters[i];
    return {};
  }
  Status all_finite(const std::vector<Values>& values, bool* finite) {
    *finite = cpu::all_finite(executor_, values);
    return {};
  }
  Status bags_finite(const std::vector<BagGradients>& gradients, bool* finite) {
    *finite = cpu::bags_finite(executor_, gradients);
    return {};
  }
  Status dot_interaction(const Interaction& call, void* products) {
    cpu::dot_interaction(executor_, call, products);
    return {};
  }
  Status dot_interaction_gradients(const Interaction& call, const void* gradient,
                                   const std::vector<void*>& gradients) {
    cpu::dot_interaction_gradients(executor_, call, gradient, gradients);
    return {};
  }

  Status size(Table& table, std::int64_t* rows) {
    *rows = table.size();
    return {};
  }
  Status stats(Table& table, std::vector<std::pair<std::string, std::int64_t>>* stats) {
    *stats = table.stats();
    return {};
  }
  Status erase(Table& table, const Key* keys, std::int64_t count, std::int64_t* erased) {
    *erased = table.erase(keys, count);
    return {};
  }
  Status clear(Table& table) {
    table.clear();
    return {};
  }
  // Takes back the planes from `first` on.
  Status detach_planes(Table& table, int first) {
    if (table.has_snapshots_of(first)) {
      return {Code::kFailedPrecondition,
              concat("table '", table.config().name, "': its planes are being dumped, and stay")};
    }
    table.detach_planes(first);
    return {};
  }
  // Calls keys_out(count), which gives where the keys go, then plane_out(i) for each plane.
  template <typename KeysOut, typename PlaneOut>
  Status export_planes(Table& table, const std::vector<int>& planes, KeysOut&& keys_out,
                       PlaneOut&& plane_out) {
    std::vector<Key> keys;
    std::vector<Row> rows;
    table.entries(&keys, &rows);
    const auto count = static_cast<std::int64_t>(keys.size());
    Key* out = nullptr;
    SOK_RETURN_IF_ERROR(keys_out(count, &out));
    std::copy(keys.begin(), keys.end(), out);
    for (std::size_t p = 0; p < planes.size(); ++p) {
      float* values = nullptr;
      SOK_RETURN_IF_ERROR(plane_out(p, count, &values));
      cpu::read_plane(executor_, table, planes[p], rows.data(), count, values);
    }
    return {};
  }
  Status import_rows(Table& table, const Key* keys, std::int64_t count, bool replace,
                     const std::vector<PlaneValues>& values) {
    return cpu::import_rows(executor_, table, keys, count, replace, values);
  }
  Status reserve(Table& table, const Key* keys, std::int64_t count) {
    return table.reserve(executor_, {{keys, count}});
  }
  Status reserve_total(Table& table, std::int64_t rows) { return table.reserve_total(rows); }
  Status snapshot(Table& table, std::vector<int> planes, std::int64_t first_row,
                  std::int64_t last_row, bool, std::shared_ptr<Snapshot>* snapshot) {
    *snapshot = table.snapshot(std::move(planes), first_row, last_row);
    return {};
  }
  // As export_planes, for the next rows of a snapshot.
  template <typename KeysOut, typename PlaneOut>
  Status read_snapshot(Table& table, Snapshot& snapshot, std::int64_t limit, KeysOut&& keys_out,
                       PlaneOut&& plane_out) {
    std::vector<Key> keys;
    std::vector<Row> rows;
    snapshot.next(limit, &keys, &rows);
    const auto count = static_cast<std::int64_t>(keys.size());
    Key* out = nullptr;
    SOK_RETURN_IF_ERROR(keys_out(count, &out));
    std::copy(keys.begin(), keys.end(), out);
    for (std::size_t p = 0; p < snapshot.planes().size(); ++p) {
      float* values = nullptr;
      SOK_RETURN_IF_ERROR(plane_out(p, count, &values));
      snapshot.read(executor_, table, p, rows, values);
    }
    snapshot.done(rows);
    return {};
  }
  Status copy_to_host(const Key* keys, std::int64_t count, std::vector<Key>* host) {
    host->assign(keys, keys + count);
    return {};
  }

 private:
  tensorflow::OpKernelContext* context_;
  KernelExecutor executor_;
};

}  // namespace sok

#endif  // SOK_KERNELS_CPU_DEVICE_H_
