// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Batches on their way from the host's memory to the device, while kernels of other batches run.
#ifndef SOK_CUDA_BATCH_COPIER_H_
#define SOK_CUDA_BATCH_COPIER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "cc_ops/core/status.h"
#include "cuda/context.h"

namespace sok::cuda {

struct HostArray {
  const void* data;
  std::size_t bytes;
};

// A batch in device memory. Whoever lets it go last must have queued all work that reads it on the
// stream of the context that it was copied with.
class DeviceBatch {
 public:
  virtual ~DeviceBatch() = default;
  virtual void* array(int i) const = 0;  // aligned to 256 bytes
};

// All arrays of a batch go in one piece through pinned memory, on a stream of their own. TensorFlow's
// own copies take the arrays one by one from pageable memory, and let each wait for all work that is
// queued on the device: whatever the allocator gave them may still be in use. Here memory comes
// back with the moment from which it is free, and only that is waited for.
class BatchCopier {
 public:
  // Copies bytes on the host: the ranges [begin, end) of a whole, perhaps at the same time.
  using Ranges = std::function<void(std::size_t begin, std::size_t end)>;
  using Parallel = std::function<void(std::size_t total, const Ranges& copy)>;

  static std::shared_ptr<BatchCopier> create();
  virtual ~BatchCopier() = default;

  // Returns when the batch has arrived. Calls take turns.
  virtual Status copy(Context& context, const std::vector<HostArray>& arrays,
                      const Parallel& parallel, std::shared_ptr<DeviceBatch>* batch) = 0;
};

}  // namespace sok::cuda

#endif  // SOK_CUDA_BATCH_COPIER_H_
