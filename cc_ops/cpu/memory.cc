// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace sok::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
// From here on whole pages, which go back at once: the C library keeps the aligned memory of tables
// that are gone, and does not find it again for the next ones.
constexpr std::size_t kWholePages = std::size_t{64} << 10;

class PageAllocator final : public Allocator {
 public:
  void* allocate(std::size_t bytes) override {
    if (bytes < kWholePages) {
      const std::size_t rounded = (bytes + 63) / 64 * 64;
      void* memory = std::aligned_alloc(64, rounded == 0 ? 64 : rounded);
      if (memory != nullptr) std::memset(memory, 0, rounded);
      return memory;
    }
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    // Advice: its failure changes speed only.
    if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
  }

  void deallocate(void* memory, std::size_t bytes) override {
    if (bytes < kWholePages) {
      std::free(memory);
    } else {
      munmap(memory, bytes);
    }
  }
};

}  // namespace

std::shared_ptr<Allocator> page_allocator() {
  static const std::shared_ptr<Allocator>* allocator =
      new std::shared_ptr<Allocator>(std::make_shared<PageAllocator>());
  return *allocator;
}

}  // namespace sok::cpu
