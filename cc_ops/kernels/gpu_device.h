// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The GPU under an op: tables in its memory, and their stages on its stream. Builds with CUDA only.
#ifndef SOK_KERNELS_GPU_DEVICE_H_
#define SOK_KERNELS_GPU_DEVICE_H_

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc_ops/kernels/gpu_context.h"
#include "cc_ops/kernels/op_boundary.h"
#include "cc_ops/kernels/table_resource.h"
#include "cc_ops/kernels/update_request.h"
#include "cuda/stages.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// Raise errors of a kernel in its own op, at the cost of a synchronisation.
bool debug_sync();

class GpuDevice {
 public:
  using Table = cuda::Table;
  using LookupFeature = cuda::LookupFeature;
  using MergeFeature = cuda::MergeFeature;

  // Keys and row numbers of one moment, and, if the table may change, its planes.
  class Snapshot {
   public:
    std::int64_t rows() const { return count_ - first_; }
    const std::vector<int>& planes() const { return planes_; }
    std::int64_t bytes() const {
      std::size_t total = keys_.bytes + rows_.bytes;
      for (const cuda::Buffer& copy : copies_) total += copy.bytes;
      return static_cast<std::int64_t>(total);
    }

   private:
    friend class GpuDevice;
    std::vector<int> planes_;
    std::int64_t first_ = 0, count_ = 0, cursor_ = 0;
    cuda::Buffer keys_, rows_;
    std::vector<cuda::Buffer> copies_;
  };
  static constexpr bool kOnHost = false;

  explicit GpuDevice(tensorflow::OpKernelContext* context) : context_(context) {}

  Status create(TableConfig config, std::unique_ptr<Table>* table) {
    return Table::create(context_, std::move(config), table);
  }
  Status lookup(const std::vector<LookupFeature>& features, bool insert) {
    SOK_RETURN_IF_ERROR(cuda::lookup(context_, features, insert));
    std::vector<Table*> tables;
    for (const LookupFeature& feature : features) tables.push_back(feature.table);
    return finish(tables);
  }
  Status weight_gradients(const LookupFeature& feature, const float* output_gradient,
                          float* gradients) {
    SOK_RETURN_IF_ERROR(cuda::weight_gradients(context_, feature, output_gradient, gradients));
    return finish({feature.table});
  }
  template <typename Allocate>
  Status merge(Table& table, const std::vector<MergeFeature>& features, float max_norm,
               Allocate&& allocate) {
    Key* keys = nullptr;
    float* gradients = nullptr;
    std::int64_t keys_count = 0;
    SOK_RETURN_IF_ERROR(
        cuda::merge(context_, &table, features,
                    [&](std::int64_t count, Key** keys_out, float** gradients_out) -> Status {
                      SOK_RETURN_IF_ERROR(allocate(count, &keys, &gradients));
                      *keys_out = keys;
                      *gradients_out = gradients;
                      keys_count = count;
                      return {};
                    }));
    if (max_norm <= 0) return finish({&table});
    return cuda::max_norm_gradients(context_, &table, keys, keys_count, max_norm, gradients);
  }
  // Rows of a GPU never lag behind: an update that reaches all of them does so at once.
  static bool lags(const Table&) { return false; }
  Status catch_up(Table&) { return {}; }
  Status update(const LockedTables<Table>& tables, const std::vector<UpdateRequest>& requests,
                const StepTensors& scalars) {
    std::vector<cuda::TableUpdate> updates;
    std::vector<Table*> touched;
    for (std::size_t t = 0; t < requests.size(); ++t) {
      const UpdateRequest& request = requests[t];
      cuda::TableUpdate update;
      update.table = &tables[t];
      update.optimizer = request.optimizer;
      update.hyper = request.hyper->flat<float>().data();
      update.initials.assign(request.optimizer->hyper.size(), request.initial);
      // To catch up later pays where memory is slow; the result is the same.
      update.reach = request.reach == Reach::kLocal ? Reach::kLocal : Reach::kGlobal;
      update.keys = request.keys->flat<std::int64_t>().data();
      update.gradients = request.gradients->flat<float>().data();
      update.count = request.keys->NumElements();
      update.unique = request.unique;
      updates.push_back(std::move(update));
      touched.push_back(&tables[t]);
    }
    SOK_RETURN_IF_ERROR(cuda::update(context_, updates, on_device(scalars)));
    return finish(touched);
  }
  Status merge_update(const LockedTables<Table>& tables,
                      const std::vector<std::vector<MergeFeature>>& features,
                      const std::vector<UpdateRequest>& requests, const StepTensors& scalars) {
    std::vector<cuda::MergeUpdate> updates(requests.size());
    std::vector<Table*> touched;
    for (std::size_t t = 0; t < requests.size(); ++t) {
      cuda::TableUpdate& update = updates[t].update;
      update.table = &tables[t];
      update.optimizer = requests[t].optimizer;
      update.hyper = requests[t].hyper->template flat<float>().data();
      update.initials.assign(requests[t].optimizer->hyper.size(), requests[t].initial);
      updates[t].features = features[t];
      touched.push_back(&tables[t]);
    }
    SOK_RETURN_IF_ERROR(cuda::merge_update(context_, updates, on_device(scalars)));
    return finish(touched);
  }
  Status hyper_parameters(const HyperParameters& parameters, float* out) {
    return cuda::hyper_parameters(context_, parameters, out);
  }
  Status all_finite(const std::vector<Values>& values, bool* finite) {
    return cuda::all_finite(context_, values, finite);
  }
  Status bags_finite(const std::vector<BagGradients>& gradients, bool* finite) {
    return cuda::bags_finite(context_, gradients, finite);
  }
  Status dot_interaction(const Interaction& call, void* products) {
    return cuda::dot_interaction(context_, call, products);
  }
  Status dot_interaction_gradients(const Interaction& call, const void* gradient,
                                   const std::vector<void*>& gradients) {
    return cuda::dot_interaction_gradients(context_, call, gradient, gradients);
  }
  Status size(Table& table, std::int64_t* rows) {
    SOK_RETURN_IF_ERROR(table.check_offending(context_));
    return table.size(context_, rows);
  }
  Status stats(Table& table, std::vector<std::pair<std::string, std::int64_t>>* stats) {
    return table.stats(context_, stats);
  }
  Status erase(Table& table, const Key* keys, std::int64_t count, std::int64_t* erased) {
    return table.erase(context_, keys, count, erased);
  }
  Status clear(Table& table) { return table.clear(context_); }
  Status detach_planes(Table& table, int first) {
    table.detach_planes(first);
    return {};
  }
  template <typename KeysOut, typename PlaneOut>
  Status export_planes(Table& table, const std::vector<int>& planes, KeysOut&& keys_out,
                       PlaneOut&& plane_out) {
    std::int64_t count = 0;
    cuda::Buffer keys, rows;
    SOK_RETURN_IF_ERROR(table.entries(context_, &count, &keys, &rows));
    Key* out = nullptr;
    SOK_RETURN_IF_ERROR(keys_out(count, &out));
    SOK_RETURN_IF_ERROR(cuda::copy(context_, out, keys.data, count * sizeof(Key)));
    for (std::size_t p = 0; p < planes.size(); ++p) {
      float* values = nullptr;
      SOK_RETURN_IF_ERROR(plane_out(p, count, &values));
      SOK_RETURN_IF_ERROR(
          cuda::read_plane(context_, table, planes[p], rows.as<Row>(), count, values));
    }
    return {};
  }
  Status import_rows(Table& table, const Key* keys, std::int64_t count, bool replace,
                     const std::vector<PlaneValues>& values) {
    std::vector<PlaneSpec> specs;
    for (const PlaneValues& plane : values) specs.push_back(plane.spec);
    // All memory before anything changes.
    cuda::Buffer rows = context_.allocate(std::max<std::int64_t>(1, count) * sizeof(Row));
    if (rows.data == nullptr) return resource_exhausted("no device memory for ", count, " rows");
    SOK_RETURN_IF_ERROR(replace ? table.reserve_total(context_, count)
                                : reserve(table, keys, count));
    SOK_RETURN_IF_ERROR(table.attach_planes(context_, specs));
    if (replace) {
      SOK_RETURN_IF_ERROR(table.clear(context_));
      SOK_RETURN_IF_ERROR(reserve(table, keys, count));  // counts them: there is room
    }
    SOK_RETURN_IF_ERROR(cuda::resolve(context_, &table, keys, count, true, rows.as<Row>()));
    for (const PlaneValues& plane : values) {
      SOK_RETURN_IF_ERROR(cuda::write_plane(context_, table, table.plane_index(plane.spec.name),
                                            rows.as<Row>(), count, plane.values));
    }
    return {};
  }
  Status reserve(Table& table, const Key* keys, std::int64_t count) {
    return cuda::reserve(context_, &table, {{keys, count}});
  }
  Status reserve_total(Table& table, std::int64_t rows) {
    return table.reserve_total(context_, rows);
  }
  Status snapshot(Table& table, std::vector<int> planes, std::int64_t first_row,
                  std::int64_t last_row, bool beside_training, std::shared_ptr<Snapshot>* result) {
    SOK_RETURN_IF_ERROR(table.check_offending(context_));
    auto snapshot = std::make_shared<Snapshot>();
    snapshot->planes_ = std::move(planes);
    SOK_RETURN_IF_ERROR(
        table.entries(context_, &snapshot->count_, &snapshot->keys_, &snapshot->rows_));
    if (table.config().is_static()) {
      snapshot->cursor_ = first_row;
      snapshot->count_ = last_row;
    }
    for (const int plane : snapshot->planes_) {
      if (!beside_training) break;
      const std::int64_t count = snapshot->count_ - snapshot->cursor_;
      const std::size_t bytes = static_cast<std::size_t>(count * table.plane_spec(plane).width) * 4;
      cuda::Buffer copy = context_.allocate(std::max<std::size_t>(1, bytes));
      if (copy.data == nullptr) {
        return resource_exhausted("table '", table.config().name,
                                  "': no device memory for a copy of ", bytes,
                                  " bytes; dump it with blocking=True");
      }
      SOK_RETURN_IF_ERROR(cuda::read_plane(context_, table, plane,
                                           snapshot->rows_.as<Row>() + snapshot->cursor_, count,
                                           copy.as<float>()));
      snapshot->copies_.push_back(std::move(copy));
    }
    snapshot->first_ = snapshot->cursor_;
    *result = std::move(snapshot);
    return {};
  }
  template <typename KeysOut, typename PlaneOut>
  Status read_snapshot(Table& table, Snapshot& snapshot, std::int64_t limit, KeysOut&& keys_out,
                       PlaneOut&& plane_out) {
    const std::int64_t begin = snapshot.cursor_;
    const std::int64_t count = std::min(std::max<std::int64_t>(limit, 1), snapshot.count_ - begin);
    snapshot.cursor_ += count;
    Key* out = nullptr;
    SOK_RETURN_IF_ERROR(keys_out(count, &out));
    SOK_RETURN_IF_ERROR(
        cuda::copy(context_, out, snapshot.keys_.as<Key>() + begin, count * sizeof(Key)));
    for (std::size_t p = 0; p < snapshot.planes_.size(); ++p) {
      float* values = nullptr;
      SOK_RETURN_IF_ERROR(plane_out(p, count, &values));
      if (snapshot.copies_.empty()) {
        SOK_RETURN_IF_ERROR(cuda::read_plane(context_, table, snapshot.planes_[p],
                                             snapshot.rows_.as<Row>() + begin, count, values));
        continue;
      }
      const std::int64_t width = table.plane_spec(snapshot.planes_[p]).width;
      SOK_RETURN_IF_ERROR(cuda::copy(
          context_, values, snapshot.copies_[p].as<float>() + (begin - snapshot.first_) * width,
          static_cast<std::size_t>(count * width) * sizeof(float)));
    }
    return {};
  }
  Status copy_to_host(const Key* keys, std::int64_t count, std::vector<Key>* host) {
    host->resize(count);
    return cuda::copy_to_host(context_, host->data(), keys, count * sizeof(Key));
  }

 private:
  static cuda::StepScalars on_device(const StepTensors& scalars) {
    return {scalars.iterations->flat<std::int64_t>().data(), scalars.scale->flat<float>().data(),
            scalars.apply->flat<bool>().data()};
  }

  Status finish(const std::vector<Table*>& tables) {
    if (!debug_sync()) return {};
    SOK_RETURN_IF_ERROR(cuda::synchronise(context_));
    for (Table* table : tables) SOK_RETURN_IF_ERROR(table->check_offending(context_));
    return {};
  }

  GpuContext context_;
};

}  // namespace sok

#endif  // SOK_KERNELS_GPU_DEVICE_H_
