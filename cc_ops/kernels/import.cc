// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Rows from elsewhere: they come, with their planes, or nothing changes.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cc_ops/cpu/key_map.h"
#include "cc_ops/kernels/one_table_op.h"

namespace sok {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Refuses keys that would leave the table half-written or ambiguous.
template <typename Device>
Status check_keys(Device& device, const TableConfig& config, const Tensor& keys) {
  const std::int64_t count = keys.NumElements();
  std::vector<Key> host;
  SOK_RETURN_IF_ERROR(device.copy_to_host(keys.flat<std::int64_t>().data(), count, &host));
  for (std::int64_t i = 0; config.is_static() && i < count; ++i) {
    if (host[i] >= 0 && host[i] < config.rows) continue;
    return invalid_argument("table '", config.name, "': id ", host[i], " at position ", i,
                            " is out of range: the table has ", config.rows, " rows");
  }
  cpu::KeyMap different(count);
  for (std::int64_t i = 0; i < count; ++i) {
    if (different.number(host[i], mix64(static_cast<std::uint64_t>(host[i]))) == i) continue;
    return invalid_argument("table '", config.name, "': id ", host[i],
                            " is repeated; each may be given once");
  }
  return {};
}

template <typename Device>
class TableImportOp final : public OneTableOp<Device, true, true> {
 public:
  using Base = OneTableOp<Device, true, true>;

  explicit TableImportOp(OpKernelConstruction* context) : Base(context) {
    OP_REQUIRES_OK(context, context->GetAttr("planes", &planes_));
    OP_REQUIRES_OK(context, context->GetAttr("initials", &initials_));
    OP_REQUIRES_OK(context, context->GetAttr("replace", &replace_));
    OP_REQUIRES(context, planes_.size() == initials_.size(),
                absl::InvalidArgumentError("planes and initials need equally many entries"));
    for (auto plane = planes_.begin(); plane != planes_.end(); ++plane) {
      OP_REQUIRES(context, std::find(planes_.begin(), plane, *plane) == plane,
                  absl::InvalidArgumentError(concat("plane '", *plane, "' is given twice")));
    }
  }

 private:
  Status run(OpKernelContext* context, typename Base::Table& table) override {
    tensorflow::OpInputList values;
    if (!context->input_list("values", &values).ok()) {
      return {Code::kInternal, "TableImport: inputs are missing"};
    }
    Device device(context);
    const Tensor& keys = context->input(1);
    SOK_RETURN_IF_ERROR(check_keys(device, table.config(), keys));
    SOK_RETURN_IF_ERROR(check_shapes(table, keys.NumElements(), values));
    std::vector<PlaneValues> planes;
    for (std::size_t p = 0; p < planes_.size(); ++p) {
      planes.push_back(
          {{planes_[p], values[p].dim_size(1), initials_[p]}, values[p].flat<float>().data()});
    }
    return device.import_rows(table, keys.flat<std::int64_t>().data(), keys.NumElements(), replace_,
                              planes);
  }

  Status check_shapes(const typename Base::Table& table, std::int64_t count,
                      const tensorflow::OpInputList& values) const {
    for (std::size_t p = 0; p < planes_.size(); ++p) {
      const Tensor& v = values[p];
      const int index = table.plane_index(planes_[p]);
      const std::int64_t width = index >= 0      ? table.plane_spec(index).width
                                 : v.dims() == 2 ? v.dim_size(1)
                                                 : -1;
      if (v.dims() != 2 || v.dim_size(0) != count || v.dim_size(1) != width || width < 1) {
        return invalid_argument("table '", table.config().name, "': '", planes_[p], "' of ", count,
                                " keys must have the shape [", count, ", ",
                                index >= 0 ? std::to_string(width) : "width", "], got ",
                                v.shape().DebugString());
      }
    }
    return {};
  }

  std::vector<std::string> planes_;
  std::vector<float> initials_;
  bool replace_ = false;
};

template <typename Device>
class TableReserveKeysOp final : public OneTableOp<Device, true> {
 public:
  using Base = OneTableOp<Device, true>;
  using Base::Base;

 private:
  Status run(OpKernelContext* context, typename Base::Table& table) override {
    Device device(context);
    const Tensor& keys = context->input(1);
    SOK_RETURN_IF_ERROR(check_keys(device, table.config(), keys));
    return device.reserve(table, keys.flat<std::int64_t>().data(), keys.NumElements());
  }
};

template <typename Device>
class TableDetachOp final : public OneTableOp<Device, true, true> {
 public:
  using Base = OneTableOp<Device, true, true>;

  explicit TableDetachOp(OpKernelConstruction* context) : Base(context) {
    OP_REQUIRES_OK(context, context->GetAttr("first", &first_));
  }

 private:
  Status run(OpKernelContext* context, typename Base::Table& table) override {
    if (first_ >= table.plane_count()) return {};
    return Device(context).detach_planes(table, first_);
  }

  int first_ = 1;
};

// `...`: what a GPU kernel keeps in host memory.
#define SOK_REGISTER(op, kernel, ...)                                                     \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_CPU), kernel<CpuDevice>);    \
  SOK_ON_GPU(REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_GPU) __VA_ARGS__, \
                                     kernel<GpuDevice>))
#define SOK_HOST(name) .HostMemory(name)
SOK_REGISTER("Sok>TableImport", TableImportOp, SOK_HOST("table"));
SOK_REGISTER("Sok>TableReserveKeys", TableReserveKeysOp, SOK_HOST("table"));
SOK_REGISTER("Sok>TableDetach", TableDetachOp, SOK_HOST("table"));
#undef SOK_HOST
#undef SOK_REGISTER

}  // namespace
}  // namespace sok
