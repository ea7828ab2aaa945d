// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Creation of tables, and the ops on a whole table: size, counters, export, erase.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cc_ops/kernels/one_table_op.h"

namespace sok {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

constexpr const char* kInitializerNames[] = {"constant", "uniform", "normal", "truncated_normal"};
constexpr const char* kDefaultRowNames[] = {"initial", "zeros", "vector"};

// Beyond it, the bytes of the most rows a table may have would not fit 64 bits.
constexpr std::int64_t kMostColumns = std::int64_t{1} << 24;

// Reads the attributes of Sok>Table.
absl::Status read_config(OpKernelConstruction* context, TableConfig* config) {
  std::string text;
  std::int64_t seed = 0;
  tensorflow::DataType row_type;
  TF_RETURN_IF_ERROR(context->GetAttr("name_of_table", &config->name));
  TF_RETURN_IF_ERROR(context->GetAttr("row_type", &row_type));
  config->row_type = row_type_of(row_type);
  TF_RETURN_IF_ERROR(context->GetAttr("dimension", &config->dimension));
  if (config->dimension < 1 || config->dimension > kMostColumns) {
    return absl::InvalidArgumentError(concat("table '", config->name,
                                             "': dimension must be at least 1 and at most ",
                                             kMostColumns, ", got ", config->dimension));
  }
  TF_RETURN_IF_ERROR(context->GetAttr("rows", &config->rows));
  TF_RETURN_IF_ERROR(context->GetAttr("id_offset", &config->id_offset));
  TF_RETURN_IF_ERROR(context->GetAttr("id_stride", &config->id_stride));
  TF_RETURN_IF_ERROR(context->GetAttr("capacity", &config->capacity));
  TF_RETURN_IF_ERROR(context->GetAttr("max_capacity", &config->max_capacity));
  TF_RETURN_IF_ERROR(context->GetAttr("device_bytes", &config->device_bytes));
  TF_RETURN_IF_ERROR(context->GetAttr("initializer", &text));
  config->initializer.kind = enum_of<InitKind>(kInitializerNames, text);
  TF_RETURN_IF_ERROR(context->GetAttr("initializer_a", &config->initializer.a));
  TF_RETURN_IF_ERROR(context->GetAttr("initializer_b", &config->initializer.b));
  TF_RETURN_IF_ERROR(context->GetAttr("seed", &seed));
  config->initializer.seed = static_cast<std::uint64_t>(seed);
  TF_RETURN_IF_ERROR(context->GetAttr("default_row", &text));
  config->default_row = enum_of<DefaultRow>(kDefaultRowNames, text);
  TF_RETURN_IF_ERROR(context->GetAttr("default_vector", &config->default_vector));
  TF_RETURN_IF_ERROR(context->GetAttr("out_of_range", &text));
  config->out_of_range = enum_of<OutOfRange>(kOutOfRangeNames, text);
  TF_RETURN_IF_ERROR(context->GetAttr("collide", &config->collide));
  if (config->default_row == DefaultRow::kVector &&
      static_cast<std::int64_t>(config->default_vector.size()) != config->dimension) {
    return absl::InvalidArgumentError(concat("table '", config->name, "': the default vector has ",
                                             config->default_vector.size(),
                                             " values, the dimension is ", config->dimension));
  }
  return absl::OkStatus();
}

template <typename Device>
class TableOp final : public OpKernel {
  using Resource = TableResource<typename Device::Table>;

 public:
  explicit TableOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("container", &container_));
    OP_REQUIRES_OK(context, context->GetAttr("shared_name", &shared_name_));
    OP_REQUIRES_OK(context, read_config(context, &config_));
  }

  void Compute(OpKernelContext* context) override {
    tensorflow::ContainerInfo info;
    OP_REQUIRES_OK(context, info.Init(context->resource_manager(), def()));
    Resource* found = nullptr;
    OP_REQUIRES_OK(context, context->resource_manager()->LookupOrCreate<Resource>(
                                info.container(), info.name(), &found,
                                [&](Resource** created) { return create(context, created); }));
    tensorflow::core::ScopedUnref unref(found);
    Tensor* handle = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &handle));
    handle->scalar<tensorflow::ResourceHandle>()() =
        tensorflow::MakeResourceHandle<Resource>(context, info.container(), info.name());
  }

 private:
  absl::Status create(OpKernelContext* context, Resource** created) {
    std::unique_ptr<typename Device::Table> table;
    TF_RETURN_IF_ERROR(to_tensorflow(Device(context).create(config_, &table)));
    *created = new Resource(std::move(table));
    return absl::OkStatus();
  }

  std::string container_, shared_name_;
  TableConfig config_;
};

template <typename Device>
class TableSizeOp final : public OneTableOp<Device, false> {
 public:
  using Base = OneTableOp<Device, false>;
  using Base::Base;

 private:
  Status run(OpKernelContext* context, typename Base::Table& table) override {
    Tensor* size = nullptr;
    SOK_RETURN_IF_ERROR(Base::output(context, 0, TensorShape({}), &size));
    return Device(context).size(table, &size->scalar<std::int64_t>()());
  }
};

template <typename Device>
class TableStatsOp final : public OneTableOp<Device, false> {
 public:
  using Base = OneTableOp<Device, false>;
  using Base::Base;

 private:
  Status run(OpKernelContext* context, typename Base::Table& table) override {
    std::vector<std::pair<std::string, std::int64_t>> stats;
    SOK_RETURN_IF_ERROR(Device(context).stats(table, &stats));
    Tensor *names = nullptr, *values = nullptr;
    const TensorShape shape({static_cast<std::int64_t>(stats.size())});
    SOK_RETURN_IF_ERROR(Base::output(context, 0, shape, &names));
    SOK_RETURN_IF_ERROR(Base::output(context, 1, shape, &values));
    for (std::size_t i = 0; i < stats.size(); ++i) {
      names->flat<tstring>()(i) = stats[i].first;
      values->flat<std::int64_t>()(i) = stats[i].second;
    }
    return {};
  }
};

template <typename Device>
class TablePlanesOp final : public OneTableOp<Device, false> {
 public:
  using Base = OneTableOp<Device, false>;
  using Base::Base;

 private:
  Status run(OpKernelContext* context, typename Base::Table& table) override {
    Tensor *names = nullptr, *widths = nullptr, *initials = nullptr;
    const TensorShape shape({table.plane_count()});
    SOK_RETURN_IF_ERROR(Base::output(context, 0, shape, &names));
    SOK_RETURN_IF_ERROR(Base::output(context, 1, shape, &widths));
    SOK_RETURN_IF_ERROR(Base::output(context, 2, shape, &initials));
    for (int i = 0; i < table.plane_count(); ++i) {
      names->flat<tstring>()(i) = table.plane_spec(i).name;
      widths->flat<std::int64_t>()(i) = table.plane_spec(i).width;
      initials->flat<float>()(i) = table.plane_spec(i).initial;
    }
    return {};
  }
};

template <typename Device>
class TableExportOp final : public OneTableOp<Device, false, true> {
 public:
  using Base = OneTableOp<Device, false, true>;

  explicit TableExportOp(OpKernelConstruction* context) : Base(context) {
    OP_REQUIRES_OK(context, context->GetAttr("planes", &planes_));
    OP_REQUIRES_OK(context, context->GetAttr("widths", &widths_));
    OP_REQUIRES(context, planes_.size() == widths_.size(),
                absl::InvalidArgumentError("planes and widths need equally many entries"));
  }

 private:
  Status run(OpKernelContext* context, typename Base::Table& table) override {
    std::vector<int> planes;
    for (std::size_t p = 0; p < planes_.size(); ++p) {
      planes.push_back(table.plane_index(planes_[p]));
      if (planes.back() < 0) {
        return {Code::kNotFound,
                concat("table '", table.config().name, "' has no plane '", planes_[p], "'")};
      }
      if (table.plane_spec(planes.back()).width != widths_[p]) {
        return invalid_argument("table '", table.config().name, "': plane '", planes_[p],
                                "' has width ", table.plane_spec(planes.back()).width, ", not ",
                                widths_[p]);
      }
    }
    return Device(context).export_planes(
        table, planes,
        [&](std::int64_t count, Key** keys) -> Status {
          Tensor* out = nullptr;
          SOK_RETURN_IF_ERROR(Base::output(context, 0, TensorShape({count}), &out));
          *keys = out->flat<std::int64_t>().data();
          return {};
        },
        [&](std::size_t p, std::int64_t count, float** values) -> Status {
          Tensor* out = nullptr;
          SOK_RETURN_IF_ERROR(Base::output(context, static_cast<int>(p + 1),
                                           TensorShape({count, widths_[p]}), &out));
          *values = out->flat<float>().data();
          return {};
        });
  }

  std::vector<std::string> planes_;
  std::vector<std::int64_t> widths_;
};

template <typename Device>
class TableEraseOp final : public OneTableOp<Device, true> {
 public:
  using Base = OneTableOp<Device, true>;
  using Base::Base;

 private:
  Status run(OpKernelContext* context, typename Base::Table& table) override {
    if (table.config().is_static()) {
      return invalid_argument("table '", table.config().name,
                              "' is static: its rows cannot be erased, only assigned");
    }
    const auto keys = context->input(1).flat<std::int64_t>();
    Tensor* erased = nullptr;
    SOK_RETURN_IF_ERROR(Base::output(context, 0, TensorShape({}), &erased));
    return Device(context).erase(table, keys.data(), keys.size(),
                                 &erased->scalar<std::int64_t>()());
  }
};

template <typename Device>
class TableSeedOp final : public OneTableOp<Device, false> {
 public:
  using Base = OneTableOp<Device, false>;
  using Base::Base;

 private:
  Status run(OpKernelContext* context, typename Base::Table& table) override {
    Tensor* seed = nullptr;
    SOK_RETURN_IF_ERROR(Base::output(context, 0, TensorShape({}), &seed));
    seed->scalar<std::int64_t>()() = static_cast<std::int64_t>(table.config().initializer.seed);
    return {};
  }
};

template <typename Device>
class TableSetSeedOp final : public OneTableOp<Device, true> {
 public:
  using Base = OneTableOp<Device, true>;
  using Base::Base;

 private:
  Status run(OpKernelContext* context, typename Base::Table& table) override {
    const auto seed = context->input(1).flat<std::int64_t>();
    if (seed.size() != 1) return invalid_argument("TableSetSeed: seed must be one number");
    table.set_seed(static_cast<std::uint64_t>(seed(0)));
    return {};
  }
};

// `...`: what a GPU kernel keeps in host memory.
#define SOK_REGISTER(op, kernel, ...)                                                     \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_CPU), kernel<CpuDevice>);    \
  SOK_ON_GPU(REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_GPU) __VA_ARGS__, \
                                     kernel<GpuDevice>))
#define SOK_HOST(name) .HostMemory(name)
SOK_REGISTER("Sok>Table", TableOp, SOK_HOST("table"));
SOK_REGISTER("Sok>TableSize", TableSizeOp, SOK_HOST("table") SOK_HOST("size"));
SOK_REGISTER("Sok>TableStats", TableStatsOp,
             SOK_HOST("table") SOK_HOST("names") SOK_HOST("values"));
SOK_REGISTER("Sok>TablePlanes", TablePlanesOp,
             SOK_HOST("table") SOK_HOST("names") SOK_HOST("widths") SOK_HOST("initials"));
SOK_REGISTER("Sok>TableExport", TableExportOp, SOK_HOST("table"));
SOK_REGISTER("Sok>TableErase", TableEraseOp, SOK_HOST("table") SOK_HOST("erased"));
SOK_REGISTER("Sok>TableSeed", TableSeedOp, SOK_HOST("table") SOK_HOST("seed"));
SOK_REGISTER("Sok>TableSetSeed", TableSetSeedOp, SOK_HOST("table") SOK_HOST("seed"));
#undef SOK_HOST
#undef SOK_REGISTER

}  // namespace
}  // namespace sok
