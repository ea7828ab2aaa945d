// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Forward of features with one id a bag whose rows need no arithmetic: a warp finds 32 rows, and
// the copy engine takes them through shared memory to the output, where they lie side by side. A
// warp's shared memory is a ring of stages: while some are read, others are written out.
#ifndef SOK_CUDA_LOOKUP_COPY_CUH_
#define SOK_CUDA_LOOKUP_COPY_CUH_

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>

#include "cuda/bulk_copy.cuh"
#include "cuda/features.cuh"
#include "cuda/launch.cuh"
#include "cuda/resolve.cuh"
#include "cuda/tuning.h"

namespace sok::cuda {

// Whether such rows can go through the stages, and gain by it.
inline bool suits_bulk_copy(std::int64_t row_bytes, const void* output) {
  return row_bytes % 16 == 0 && row_bytes >= tuning::kCopyFrom && row_bytes <= tuning::kCopyStage &&
         reinterpret_cast<std::uintptr_t>(output) % 16 == 0;
}

// One warp's ring.
class CopyRing {
 public:
  struct Write {
    char* to;
    std::uint32_t bytes;
  };
  static constexpr int kStages = tuning::kCopyStages;

  __device__ CopyRing(char* stages, bulk::Barrier* barriers, Write* writes)
      : stages_(stages), barriers_(barriers), writes_(writes), leader_((threadIdx.x & 31) == 0) {}

  // The next stage, free to be filled.
  __device__ char* open() {
    if (filled_ - written_ == kReads) write_oldest();
    if (leader_) bulk::wait_written<kStages - kReads>();
    __syncwarp();
    return stages_ + filled_ % kStages * tuning::kCopyStage;
  }
  // `bytes` of it will be read by the engine, and `write` then goes out of it.
  __device__ bulk::Barrier* expect(std::uint32_t bytes, Write write) {
    bulk::Barrier* barrier = barriers_ + filled_ % kStages;
    if (leader_) {
      writes_[filled_ % kStages] = write;
      bulk::expect(barrier, bytes);
    }
    __syncwarp();
    ++filled_;
    return barrier;
  }
  __device__ void finish() {
    while (written_ < filled_) write_oldest();
    if (leader_) bulk::wait_written<0>();
  }

 private:
  // Stages that are being read; the others are being written out.
  static constexpr int kReads = kStages - 1;

  __device__ void write_oldest() {
    const std::uint32_t stage = written_ % kStages;
    bulk::wait(barriers_ + stage, written_ / kStages & 1);
    if (leader_) {
      bulk::write_out(writes_[stage].to, stages_ + stage * tuning::kCopyStage,
                      writes_[stage].bytes);
    }
    ++written_;
  }

  char* stages_;
  bulk::Barrier* barriers_;
  Write* writes_;
  bool leader_;
  std::uint32_t filled_ = 0, written_ = 0;
};

// The rows of the ids [first, last), at most 32, one a lane.
template <typename T>
__device__ void copy_rows_in_bulk(const FeatureArgs& feature, std::int64_t first, std::int64_t last,
                                  CopyRing* ring) {
  const int lane = threadIdx.x & 31;
  const std::int64_t i = first + lane;
  const bool mine = i < last;
  Row row = kNoRow;
  if (mine) {
    row = feature.rows != nullptr ? feature.rows[i]
                                  : find_row(*feature.table, feature.bags.ids[i], i);
  }
  const auto row_bytes = static_cast<std::uint32_t>(feature.width * sizeof(T));
  const int together = static_cast<int>(tuning::kCopyStage / row_bytes);
  char* out = static_cast<char*>(feature.columns.data) + first * row_bytes;
  for (int begin = 0; first + begin < last; begin += together) {
    char* stage = ring->open();
    const bool here = mine && lane >= begin && lane < begin + together;
    const unsigned all = __ballot_sync(kFullMask, here);
    unsigned missing = __ballot_sync(kFullMask, here && row == kNoRow);
    const auto bytes = static_cast<std::uint32_t>(__popc(all)) * row_bytes;
    const auto read = bytes - static_cast<std::uint32_t>(__popc(missing)) * row_bytes;
    if (missing != 0) {
      for (; missing != 0; missing &= missing - 1) {
        const int at = __ffs(static_cast<int>(missing)) - 1;
        T* to = reinterpret_cast<T*>(stage + (at - begin) * row_bytes);
        for (std::int64_t c = lane * 4; c < feature.width; c += 32 * 4) {
          store<T, 4>(to + c,
                      default_columns<T, 4>(*feature.table, feature.bags.ids[first + at], c));
        }
      }
      bulk::publish_stores();
    }
    bulk::Barrier* barrier =
        ring->expect(read, {out + static_cast<std::int64_t>(begin) * row_bytes, bytes});
    if (here && row != kNoRow) {
      bulk::read(stage + (lane - begin) * row_bytes, row_pointer<T>(feature, row), row_bytes,
                 barrier);
    }
  }
}

template <typename T, typename Where>
__global__ void __launch_bounds__(tuning::kCopyWarps * 32, tuning::kCopyBlocks)
    copy_kernel(const __grid_constant__ FeatureLaunch<Where> args) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char stages[];
  __shared__ bulk::Barrier barriers[tuning::kCopyWarps][CopyRing::kStages];
  __shared__ CopyRing::Write writes[tuning::kCopyWarps][CopyRing::kStages];
  if (threadIdx.x < tuning::kCopyWarps * CopyRing::kStages) {
    bulk::create(&barriers[0][0] + threadIdx.x);
    bulk::publish_barriers();
  }
  __syncthreads();
  const int warp = threadIdx.x / 32;
  CopyRing ring(stages + warp * CopyRing::kStages * tuning::kCopyStage, barriers[warp],
                writes[warp]);
  const std::int64_t warps = thread_count() / 32;
  for (std::int64_t unit = thread_index() / 32; unit < args.units; unit += warps) {
    const FeatureArgs& feature = args.find(&FeatureArgs::first_unit, unit);
    if (feature.rows != nullptr && unit == feature.first_unit && (threadIdx.x & 31) == 0) {
      feature.table->source.report(feature.round);
    }
    const std::int64_t first = (unit - feature.first_unit) * feature.bags_per_tile;
    const std::int64_t past = first + feature.bags_per_tile;
    copy_rows_in_bulk<T>(feature, first, past < feature.bags.bags ? past : feature.bags.bags,
                         &ring);
  }
  ring.finish();
#endif
}

// What the kernel needs to know of the current device, asked for once.
struct CopyLimits {
  bool usable = false;  // this device runs code made for a copy engine
  int multiprocessors = 0;
};

constexpr int kCopyShared = tuning::kCopyWarps * CopyRing::kStages * tuning::kCopyStage;

template <typename T>
Status copy_limits(CopyLimits* limits) {
  static std::mutex mutex;
  static std::map<int, CopyLimits> known;
  int device = 0;
  SOK_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device));
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(device);
  if (found != known.end()) {
    *limits = found->second;
    return {};
  }
  cudaFuncAttributes code;
  SOK_CUDA_RETURN_IF_ERROR(cudaFuncGetAttributes(&code, copy_kernel<T, InParameters>));
  SOK_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&limits->multiprocessors, cudaDevAttrMultiProcessorCount, device));
  int shared = 0;
  SOK_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  // Not the device's capability: what was built for an older one runs on it too, with an empty
  // kernel. And not every later device has a Hopper's shared memory.
  limits->usable = code.ptxVersion >= 90 &&
                   static_cast<std::size_t>(shared) >= kCopyShared + code.sharedSizeBytes;
  if (limits->usable) {
    for (const void* each : {reinterpret_cast<const void*>(copy_kernel<T, InParameters>),
                             reinterpret_cast<const void*>(copy_kernel<T, InMemory>)}) {
      SOK_CUDA_RETURN_IF_ERROR(
          cudaFuncSetAttribute(each, cudaFuncAttributeMaxDynamicSharedMemorySize, kCopyShared));
    }
  }
  known[device] = *limits;
  return {};
}

// As many blocks as are resident at once; each warp strides over the units.
template <typename T, typename Where>
Status launch_copies(Context& context, const FeatureLaunch<Where>& args) {
  CopyLimits limits;
  SOK_RETURN_IF_ERROR(copy_limits<T>(&limits));
  const std::int64_t blocks =
      std::min<std::int64_t>(limits.multiprocessors * tuning::kCopyBlocks,
                             (args.units + tuning::kCopyWarps - 1) / tuning::kCopyWarps);
  return launch_blocks(context, "lookup", copy_kernel<T, Where>, blocks, tuning::kCopyWarps * 32,
                       kCopyShared, args);
}

}  // namespace sok::cuda

#endif  // SOK_CUDA_LOOKUP_COPY_CUH_
