// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "cuda/batch_copier.h"
#include "cuda/cuda_status.h"
#include "cuda/launch.cuh"

namespace sok::cuda {
namespace {

// The calling thread on a device, for as long as this lives.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device()) { cudaSetDevice(device); }
  ~OnDevice() { cudaSetDevice(before_); }

 private:
  int before_;
};

// Device memory, and the moment from which it may be written to.
struct Slot {
  Buffer memory;
  cudaEvent_t free_from = nullptr;
};

class Copier final : public BatchCopier, public std::enable_shared_from_this<Copier> {
 public:
  ~Copier() override {
    const OnDevice here(device_);
    for (const Slot& slot : free_) cudaEventDestroy(slot.free_from);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  Status copy(Context& context, const std::vector<HostArray>& arrays, const Parallel& parallel,
              std::shared_ptr<DeviceBatch>* batch) override;

 private:
  class Batch;

  Status take(Context& context, std::size_t bytes, Slot* slot);
  void give_back(const Slot& slot, cudaStream_t used_on);

  std::mutex copying_;
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
  Buffer pinned_;
  std::mutex mutex_;  // of the slots
  std::vector<Slot> free_;
};

class Copier::Batch final : public DeviceBatch {
 public:
  Batch(std::shared_ptr<Copier> copier, Slot slot, cudaStream_t used_on,
        std::vector<std::size_t> offsets)
      : copier_(std::move(copier)),
        slot_(std::move(slot)),
        used_on_(used_on),
        offsets_(std::move(offsets)) {}
  ~Batch() override { copier_->give_back(slot_, used_on_); }
  void* array(int i) const override { return slot_.memory.as<char>() + offsets_[i]; }

 private:
  std::shared_ptr<Copier> copier_;
  Slot slot_;
  cudaStream_t used_on_;
  std::vector<std::size_t> offsets_;
};

// The smallest slot that is large enough, or a new one in place of a smaller.
Status Copier::take(Context& context, std::size_t bytes, Slot* slot) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto smaller = [](const Slot& a, const Slot& b) {
      return a.memory.bytes < b.memory.bytes;
    };
    std::sort(free_.begin(), free_.end(), smaller);
    const auto fits = std::find_if(free_.begin(), free_.end(),
                                   [&](const Slot& each) { return each.memory.bytes >= bytes; });
    const auto chosen = fits != free_.end() ? fits : free_.begin();
    if (chosen != free_.end()) {
      *slot = std::move(*chosen);
      free_.erase(chosen);
    }
  }
  if (slot->memory.data != nullptr && slot->memory.bytes >= bytes) return {};
  slot->memory = {};
  slot->memory = context.allocate(bytes);
  if (slot->memory.data == nullptr) {
    if (slot->free_from != nullptr) cudaEventDestroy(slot->free_from);
    return resource_exhausted("CopyBatch: no device memory for a batch of ", bytes, " bytes");
  }
  if (slot->free_from == nullptr) {
    SOK_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&slot->free_from, cudaEventDisableTiming));
  }
  return cuda_status(cudaEventRecord(slot->free_from, stream_of(context)), "cudaEventRecord");
}

void Copier::give_back(const Slot& slot, cudaStream_t used_on) {
  const OnDevice here(device_);
  // An error here is one of the device, which the next op on it reports.
  cudaEventRecord(slot.free_from, used_on);
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(slot);
}

Status Copier::copy(Context& context, const std::vector<HostArray>& arrays,
                    const Parallel& parallel, std::shared_ptr<DeviceBatch>* batch) {
  const std::lock_guard<std::mutex> lock(copying_);
  if (stream_ == nullptr) {
    device_ = current_device();
    SOK_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
  for (const HostArray& array : arrays) {
    offsets.push_back(bytes);
    bytes += (array.bytes + 255) / 256 * 256;
  }
  if (pinned_.bytes < bytes) {
    pinned_ = {};
    pinned_ = context.allocate_pinned(bytes);
    if (pinned_.data == nullptr) {
      return resource_exhausted("CopyBatch: no pinned memory for a batch of ", bytes, " bytes");
    }
  }
  parallel(bytes, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const std::size_t from = std::max(begin, offsets[i]);
      const std::size_t to = std::min(end, offsets[i] + arrays[i].bytes);
      if (from >= to) continue;
      std::memcpy(pinned_.as<char>() + from,
                  static_cast<const char*>(arrays[i].data) + (from - offsets[i]), to - from);
    }
  });
  Slot slot;
  SOK_RETURN_IF_ERROR(take(context, bytes, &slot));
  // From here on the slot belongs to the batch, which gives it back whatever happens.
  auto made =
      std::make_shared<Batch>(shared_from_this(), slot, stream_of(context), std::move(offsets));
  SOK_CUDA_RETURN_IF_ERROR(cudaStreamWaitEvent(stream_, slot.free_from, 0));
  SOK_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(slot.memory.data, pinned_.data, bytes, cudaMemcpyHostToDevice, stream_));
  // So the pinned memory is free again, and any stream may read the batch.
  SOK_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_));
  *batch = std::move(made);
  return {};
}

}  // namespace

std::shared_ptr<BatchCopier> BatchCopier::create() { return std::make_shared<Copier>(); }

}  // namespace sok::cuda
