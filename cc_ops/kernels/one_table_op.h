// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_KERNELS_ONE_TABLE_OP_H_
#define SOK_KERNELS_ONE_TABLE_OP_H_

#include <string>

#include "cc_ops/kernels/device.h"

namespace sok {

// What the ops on one table share: its lock, and errors. With `ReadsRows` the rows are up to date
// before the op runs.
template <typename Device, bool Exclusive, bool ReadsRows = false>
class OneTableOp : public tensorflow::OpKernel {
 public:
  using Table = typename Device::Table;
  using tensorflow::OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) final {
    LockedTables<Table> tables;
    OP_REQUIRES_OK(context, tables.lock(context, "table", Exclusive || !Device::kOnHost));
    run_op(context, [&] {
      if (ReadsRows) {
        lock_to_read<Device>(&tables);
        SOK_RETURN_IF_ERROR(Device(context).catch_up(tables[0]));
      }
      return run(context, tables[0]);
    });
  }

 protected:
  virtual Status run(tensorflow::OpKernelContext* context, Table& table) = 0;

  // A fresh output tensor.
  static Status output(tensorflow::OpKernelContext* context, int index,
                       tensorflow::TensorShape shape, tensorflow::Tensor** tensor) {
    if (auto status = context->allocate_output(index, shape, tensor); !status.ok()) {
      return resource_exhausted(std::string(status.message()));
    }
    return {};
  }
};

}  // namespace sok

#endif  // SOK_KERNELS_ONE_TABLE_OP_H_
