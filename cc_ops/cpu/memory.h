// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CPU_MEMORY_H_
#define SOK_CPU_MEMORY_H_

#include <cstddef>
#include <memory>

namespace sok::cpu {

// Where slabs and indices come from. A null result means that there is no memory: no exception.
class Allocator {
 public:
  virtual ~Allocator() = default;
  // Zeroed, aligned to 64 bytes.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* memory, std::size_t bytes) = 0;
};

// Pages from the operating system, which count only once they are written, huge pages where the
// system grants them: random rows then cost fewer misses of the address translation.
std::shared_ptr<Allocator> page_allocator();

// An owned piece of an allocator's memory.
class Memory {
 public:
  Memory() = default;
  // Empty (data() is null) if the allocator has nothing left.
  Memory(std::shared_ptr<Allocator> allocator, std::size_t bytes)
      : allocator_(std::move(allocator)), bytes_(bytes), data_(allocator_->allocate(bytes)) {
    if (data_ == nullptr) bytes_ = 0;
  }
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Memory() {
    if (data_ != nullptr) allocator_->deallocate(data_, bytes_);
  }

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(Memory& other) {
    std::swap(allocator_, other.allocator_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
  }

  std::shared_ptr<Allocator> allocator_;
  std::size_t bytes_ = 0;
  void* data_ = nullptr;
};

}  // namespace sok::cpu

#endif  // SOK_CPU_MEMORY_H_
