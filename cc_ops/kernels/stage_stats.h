// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_KERNELS_STAGE_STATS_H_
#define SOK_KERNELS_STAGE_STATS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace sok {

// What the stages of this process have done since it started.
struct StageCount {
  std::int64_t calls = 0;
  double seconds = 0;
  std::int64_t sent_bytes = 0;              // to other ranks
  std::int64_t sent_rows = 0;               // slices along the first dimension, to other ranks
  std::vector<std::int64_t> sent_bytes_to;  // by rank, where the stage says what each one gets
  std::int64_t gpu_calls = 0;               // of the calls, those on a GPU
  std::int64_t gpu_kernels = 0;             // that they launched
};

// Adds to the counters of a stage. From any thread.
void count_stage(const std::string& stage, const StageCount& count);

class StageTimer {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace sok

#endif  // SOK_KERNELS_STAGE_STATS_H_
