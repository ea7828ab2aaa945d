// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "cuda/batch_copier.h"
#include "cuda/cuda_status.h"
#include "cuda/launch.cuh"

namespace sok::cuda {
namespace {

// Device memory, and the moment from which it may be written to.
class Slot {
 public:
  Buffer memory;

  // From when all that is queued on the stream now is done. An event and its stream may be of another
  // device than the thread's current one.
  Status free_after(cudaStream_t stream) {
    if (event_ == nullptr) {
      cudaEvent_t event = nullptr;
      SOK_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
      event_.reset(event);
    }
    return cuda_status(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
  }
  cudaEvent_t free_from() const { return event_.get(); }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy> event_;
};

// A size for some more than `bytes`, so that batches of many sizes soon need no new memory.
std::size_t rounded(std::size_t bytes) {
  std::size_t step = 1 << 16;
  while (8 * step < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

class Copier final : public BatchCopier, public std::enable_shared_from_this<Copier> {
 public:
  Copier() { free_.reserve(kMostFree); }
  ~Copier() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  Status copy(Context& context, const std::vector<HostArray>& arrays, const Parallel& parallel,
              std::shared_ptr<DeviceBatch>* batch) override;

 private:
  class Batch;

  // Slots that are kept for batches to come: as many as steps are queued, not as many as somebody
  // once kept.
  static constexpr std::size_t kMostFree = 8;

  Status take(Context& context, std::size_t bytes, Slot* slot);
  void give_back(Slot slot, cudaStream_t used_on);

  std::mutex copying_;
  cudaStream_t stream_ = nullptr;
  Buffer pinned_;
  std::mutex mutex_;        // of the slots
  std::vector<Slot> free_;  // in the order in which they came back
};

class Copier::Batch final : public DeviceBatch {
 public:
  Batch(std::shared_ptr<Copier> copier, Slot slot, cudaStream_t used_on,
        std::vector<std::size_t> offsets)
      : copier_(std::move(copier)),
        slot_(std::move(slot)),
        used_on_(used_on),
        offsets_(std::move(offsets)) {}
  ~Batch() override { copier_->give_back(std::move(slot_), used_on_); }
  void* array(int i) const override { return slot_.memory.as<char>() + offsets_[i]; }

 private:
  std::shared_ptr<Copier> copier_;
  Slot slot_;
  cudaStream_t used_on_;
  std::vector<std::size_t> offsets_;
};

// The slot that came back first, of those that are large enough, or a new one.
Status Copier::take(Context& context, std::size_t bytes, Slot* slot) {
  std::vector<Slot> too_small;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto fits = std::find_if(free_.begin(), free_.end(),
                                   [&](const Slot& each) { return each.memory.bytes >= bytes; });
    if (fits != free_.end()) {
      *slot = std::move(*fits);
      free_.erase(fits);
      return {};
    }
    std::swap(too_small, free_);
    free_.reserve(kMostFree);
  }
  slot->memory = context.allocate_at_once(rounded(bytes));
  if (slot->memory.data == nullptr) {
    too_small.clear();
    slot->memory = context.allocate(rounded(bytes));
  }
  if (slot->memory.data == nullptr) {
    return resource_exhausted("CopyBatch: no device memory for a batch of ", bytes, " bytes");
  }
  return slot->free_after(stream_of(context));
}

void Copier::give_back(Slot slot, cudaStream_t used_on) {
  // Otherwise its memory goes to the allocator, which hands it on in the order of that stream.
  if (!slot.free_after(used_on).ok()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (free_.size() < kMostFree) free_.push_back(std::move(slot));
}

Status Copier::copy(Context& context, const std::vector<HostArray>& arrays,
                    const Parallel& parallel, std::shared_ptr<DeviceBatch>* batch) {
  const std::lock_guard<std::mutex> lock(copying_);
  if (stream_ == nullptr) {
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
    pinned_ = context.allocate_pinned(rounded(bytes));
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
  SOK_CUDA_RETURN_IF_ERROR(cudaStreamWaitEvent(stream_, slot.free_from(), 0));
  SOK_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(slot.memory.data, pinned_.data, bytes, cudaMemcpyHostToDevice, stream_));
  // So the pinned memory is free again, and any stream may read the batch.
  SOK_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_));
  *batch = std::make_shared<Batch>(shared_from_this(), std::move(slot), stream_of(context),
                                   std::move(offsets));
  return {};
}

}  // namespace

std::shared_ptr<BatchCopier> BatchCopier::create() { return std::make_shared<Copier>(); }

}  // namespace sok::cuda
