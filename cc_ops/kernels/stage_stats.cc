// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/kernels/stage_stats.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <sstream>

namespace sok {
namespace {

struct Counters {
  std::mutex mutex;
  std::map<std::string, StageCount> stages;
};

Counters& counters() {
  static auto* all = new Counters;
  return *all;
}

}  // namespace

void count_stage(const std::string& stage, const StageCount& count) {
  std::lock_guard<std::mutex> lock(counters().mutex);
  StageCount& total = counters().stages[stage];
  total.calls += count.calls;
  total.seconds += count.seconds;
  total.sent_bytes += count.sent_bytes;
  total.sent_rows += count.sent_rows;
  total.sent_bytes_to.resize(std::max(total.sent_bytes_to.size(), count.sent_bytes_to.size()));
  for (std::size_t rank = 0; rank < count.sent_bytes_to.size(); ++rank) {
    total.sent_bytes_to[rank] += count.sent_bytes_to[rank];
  }
  total.gpu_calls += count.gpu_calls;
  total.gpu_kernels += count.gpu_kernels;
}

}  // namespace sok

// The counters as JSON. Valid until the calling thread's next call.
extern "C" __attribute__((visibility("default"))) const char* sok_stage_stats() {
  thread_local std::string text;
  std::ostringstream out;
  out << "{";
  std::lock_guard<std::mutex> lock(sok::counters().mutex);
  for (const auto& [name, count] : sok::counters().stages) {
    if (out.tellp() > 1) out << ", ";
    out << "\"" << name << "\": {\"calls\": " << count.calls << ", \"seconds\": " << count.seconds
        << ", \"sent_bytes\": " << count.sent_bytes << ", \"sent_rows\": " << count.sent_rows
        << ", \"gpu_calls\": " << count.gpu_calls << ", \"gpu_kernels\": " << count.gpu_kernels
        << ", \"sent_bytes_to\": [";
    for (std::size_t rank = 0; rank < count.sent_bytes_to.size(); ++rank) {
      out << (rank > 0 ? ", " : "") << count.sent_bytes_to[rank];
    }
    out << "]}";
  }
  out << "}";
  text = out.str();
  return text.c_str();
}
