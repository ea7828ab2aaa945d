// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Reading a table piece by piece, as it was at one moment.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc_ops/kernels/device.h"

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// A snapshot and the name of its table. Its handle owns it.
template <typename Device>
class SnapshotResource final : public tensorflow::ResourceBase {
 public:
  using Snapshot = typename Device::Snapshot;

  SnapshotResource(std::shared_ptr<Snapshot> snapshot, const void* table)
      : snapshot_(std::move(snapshot)), table_(table) {}

  std::string DebugString() const override { return "snapshot of a SOK table"; }
  Snapshot& snapshot() { return *snapshot_; }
  // Only compared: the table may be gone.
  const void* table() const { return table_; }
  // Readers take turns.
  std::mutex& mutex() { return mutex_; }

 private:
  std::shared_ptr<Snapshot> snapshot_;
  const void* table_;
  std::mutex mutex_;
};

template <typename Device>
class TableSnapshotOp final : public OpKernel {
  using Resource = SnapshotResource<Device>;
  using Table = typename Device::Table;

 public:
  explicit TableSnapshotOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("planes", &planes_));
    OP_REQUIRES_OK(context, context->GetAttr("part", &part_));
    OP_REQUIRES_OK(context, context->GetAttr("parts", &parts_));
    OP_REQUIRES_OK(context, context->GetAttr("beside_training", &beside_training_));
    OP_REQUIRES(context, part_ < parts_,
                absl::InvalidArgumentError(concat("part ", part_, " of ", parts_, " parts")));
  }

  void Compute(OpKernelContext* context) override {
    LockedTables<Table> tables;
    OP_REQUIRES_OK(context, tables.lock(context, "table", true));
    run_op(context, [&] { return run(context, tables[0]); });
  }

 private:
  Status run(OpKernelContext* context, Table& table) {
    std::vector<int> planes;
    for (const std::string& name : planes_) {
      planes.push_back(table.plane_index(name));
      if (planes.back() < 0) {
        return {Code::kNotFound,
                concat("table '", table.config().name, "' has no plane '", name, "'")};
      }
    }
    if (parts_ > 1 && !table.config().is_static()) {
      return invalid_argument("table '", table.config().name, "': parts are for static tables");
    }
    Device device(context);
    SOK_RETURN_IF_ERROR(device.catch_up(table));
    std::shared_ptr<typename Device::Snapshot> snapshot;
    const std::int64_t rows = std::max<std::int64_t>(0, table.config().rows);
    SOK_RETURN_IF_ERROR(device.snapshot(table, std::move(planes), rows * part_ / parts_,
                                        rows * (part_ + 1) / parts_, beside_training_, &snapshot));
    Tensor *handle = nullptr, *count = nullptr;
    SOK_RETURN_IF_ERROR(allocate(context, 0, TensorShape({}), &handle));
    SOK_RETURN_IF_ERROR(allocate(context, 1, TensorShape({}), &count));
    count->scalar<std::int64_t>()() = snapshot->rows();
    handle->scalar<tensorflow::ResourceHandle>()() =
        tensorflow::ResourceHandle::MakeRefCountingHandle(new Resource(std::move(snapshot), &table),
                                                          context->device()->name());
    return {};
  }

  std::vector<std::string> planes_;
  std::int64_t part_ = 0, parts_ = 1;
  bool beside_training_ = false;
};

template <typename Device>
absl::Status find_snapshot(OpKernelContext* context, int input,
                           tensorflow::core::RefCountPtr<SnapshotResource<Device>>* snapshot) {
  const Tensor& handle = context->input(input);
  if (handle.NumElements() != 1) return absl::InvalidArgumentError("snapshot must be one handle");
  return tensorflow::LookupResource(context, handle.flat<tensorflow::ResourceHandle>()(0),
                                    snapshot);
}

template <typename Device>
class TableSnapshotReadOp final : public OpKernel {
  using Table = typename Device::Table;

 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    LockedTables<Table> tables;
    OP_REQUIRES_OK(context, tables.lock(context, "table", !Device::kOnHost));
    tensorflow::core::RefCountPtr<SnapshotResource<Device>> resource;
    OP_REQUIRES_OK(context, find_snapshot<Device>(context, 1, &resource));
    std::lock_guard<std::mutex> turn(resource->mutex());
    run_op(context, [&] { return run(context, tables[0], *resource); });
  }

 private:
  Status run(OpKernelContext* context, Table& table, SnapshotResource<Device>& resource) {
    auto& snapshot = resource.snapshot();
    const Tensor& limit = context->input(2);
    const bool has_planes = std::all_of(snapshot.planes().begin(), snapshot.planes().end(),
                                        [&](int plane) { return plane < table.plane_count(); });
    if (resource.table() != &table || limit.NumElements() != 1 || !has_planes ||
        static_cast<std::size_t>(context->num_outputs()) != snapshot.planes().size() + 1) {
      return invalid_argument("TableSnapshotRead: table '", table.config().name,
                              "' is not the one that the ",
                              "snapshot is of, or it has other planes, or limit is not one number");
    }
    return Device(context).read_snapshot(
        table, snapshot, limit.flat<std::int64_t>()(0),
        [&](std::int64_t count, Key** keys) -> Status {
          Tensor* out = nullptr;
          SOK_RETURN_IF_ERROR(allocate(context, 0, TensorShape({count}), &out));
          *keys = out->flat<std::int64_t>().data();
          return {};
        },
        [&](std::size_t p, std::int64_t count, float** values) -> Status {
          Tensor* out = nullptr;
          const std::int64_t width = table.plane_spec(snapshot.planes()[p]).width;
          SOK_RETURN_IF_ERROR(
              allocate(context, static_cast<int>(p + 1), TensorShape({count, width}), &out));
          *values = out->flat<float>().data();
          return {};
        });
  }
};

template <typename Device>
class TableSnapshotBytesOp final : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    tensorflow::core::RefCountPtr<SnapshotResource<Device>> resource;
    OP_REQUIRES_OK(context, find_snapshot<Device>(context, 0, &resource));
    std::lock_guard<std::mutex> turn(resource->mutex());
    Tensor* bytes = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &bytes));
    bytes->scalar<std::int64_t>()() = resource->snapshot().bytes();
  }
};

template <typename Device>
class TableReserveOp final : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    LockedTables<typename Device::Table> tables;
    OP_REQUIRES_OK(context, tables.lock(context, "table", true));
    run_op(context, [&]() -> Status {
      const auto rows = context->input(1).flat<std::int64_t>();
      if (rows.size() != 1) return invalid_argument("TableReserve: rows must be one number");
      return Device(context).reserve_total(tables[0], rows(0));
    });
  }
};

// `...`: what a GPU kernel keeps in host memory.
#define SOK_REGISTER(op, kernel, ...)                                                     \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_CPU), kernel<CpuDevice>);    \
  SOK_ON_GPU(REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_GPU) __VA_ARGS__, \
                                     kernel<GpuDevice>))
#define SOK_HOST(name) .HostMemory(name)
SOK_REGISTER("Sok>TableSnapshot", TableSnapshotOp,
             SOK_HOST("table") SOK_HOST("snapshot") SOK_HOST("rows"));
SOK_REGISTER("Sok>TableSnapshotRead", TableSnapshotReadOp,
             SOK_HOST("table") SOK_HOST("snapshot") SOK_HOST("limit"));
SOK_REGISTER("Sok>TableSnapshotBytes", TableSnapshotBytesOp,
             SOK_HOST("snapshot") SOK_HOST("bytes"));
SOK_REGISTER("Sok>TableReserve", TableReserveOp, SOK_HOST("table") SOK_HOST("rows"));
#undef SOK_HOST
#undef SOK_REGISTER

}  // namespace
}  // namespace sok
