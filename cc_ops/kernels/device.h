// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The two devices an op can run on. Each kernel is one class template over them: a device says what
// its table is and runs the stages; the checks and the order of things are written once.
#ifndef SOK_KERNELS_DEVICE_H_
#define SOK_KERNELS_DEVICE_H_

#include "cc_ops/kernels/cpu_device.h"

#ifdef SOK_WITH_CUDA
#include "cc_ops/kernels/gpu_device.h"
#define SOK_ON_GPU(statement) statement
#else
#define SOK_ON_GPU(statement)
#endif

namespace sok {

// Before an op reads rows: reading those that lag behind changes them.
template <typename Device>
void lock_to_read(LockedTables<typename Device::Table>* tables) {
  for (std::size_t t = 0; t < tables->size(); ++t) {
    if (Device::lags((*tables)[t])) tables->lock_alone();
  }
}

}  // namespace sok

#endif  // SOK_KERNELS_DEVICE_H_
