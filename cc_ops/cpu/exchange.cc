// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "cc_ops/cpu/rank_stages.h"

namespace sok::cpu {
namespace {

constexpr std::int64_t kCopyBytes = 1 << 18;

struct Copy {
  std::int64_t in_buffer;
  char* in_part;
  std::int64_t bytes;
};

// The copies that connect a buffer with the parts, none longer than kCopyBytes.
std::vector<Copy> copies(const std::vector<ExchangePart>& parts, const std::int64_t* counts,
                         std::int64_t ranks) {
  std::vector<Copy> result;
  std::vector<std::int64_t> done(parts.size(), 0);
  std::int64_t at = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t t = 0; t < parts.size(); ++t) {
      std::int64_t bytes =
          counts[rank * static_cast<std::int64_t>(parts.size()) + static_cast<std::int64_t>(t)] *
          parts[t].row_bytes;
      while (bytes > 0) {
        const std::int64_t step = std::min(bytes, kCopyBytes);
        result.push_back({at, parts[t].rows + done[t], step});
        at += step;
        done[t] += step;
        bytes -= step;
      }
    }
  }
  return result;
}

template <typename Body>
void for_each(Executor& executor, const std::vector<Copy>& copies, Body&& body) {
  std::int64_t bytes = 0;
  for (const Copy& copy : copies) bytes += copy.bytes;
  const auto count = static_cast<std::int64_t>(copies.size());
  executor.parallel_for(count, bytes / 8 / std::max<std::int64_t>(count, 1),
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t i = begin; i < end; ++i) body(copies[i]);
                        });
}

}  // namespace

void interleave(Executor& executor, const std::vector<ExchangePart>& parts,
                const std::int64_t* counts, std::int64_t ranks, char* buffer) {
  for_each(executor, copies(parts, counts, ranks), [buffer](const Copy& copy) {
    std::memcpy(buffer + copy.in_buffer, copy.in_part, static_cast<std::size_t>(copy.bytes));
  });
}

void deinterleave(Executor& executor, const char* buffer, const std::int64_t* counts,
                  std::int64_t ranks, const std::vector<ExchangePart>& parts) {
  for_each(executor, copies(parts, counts, ranks), [buffer](const Copy& copy) {
    std::memcpy(copy.in_part, buffer + copy.in_buffer, static_cast<std::size_t>(copy.bytes));
  });
}

}  // namespace sok::cpu
