// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Lists of what one launch works on. A few items travel with the launch, as parameters of its
// kernel: constants there, which need no copy. Any number of items are read from device memory.
#ifndef SOK_CUDA_DESCRIPTORS_CUH_
#define SOK_CUDA_DESCRIPTORS_CUH_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "cc_ops/core/status.h"
#include "cuda/launch.cuh"
#include "cuda/tuning.h"

namespace sok::cuda {

// Where a kernel finds its lists: what kernels that take them are templates over.
struct InParameters {
  template <typename T>
  struct List {
    T items[tuning::kItemsInParameters];
  };
};
struct InMemory {
  template <typename T>
  struct List {
    const T* items;
  };
};

// Calls f(where), where being an InParameters or an InMemory.
template <typename F>
Status with_place(bool in_parameters, F&& f) {
  return in_parameters ? f(InParameters{}) : f(InMemory{});
}

// A launch counts its units of work through all items of a list; `first` is where an item begins.
// Gives the item of a unit: the last that begins no later, as items without units begin where the
// next one does. A single item takes no step, a thousand take ten.
template <typename List, typename T>
__device__ __forceinline__ int find_item(const List& list, int count, std::int64_t T::* first,
                                         std::int64_t unit) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (list.items[middle].*first <= unit) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The host's side of a list. Its device memory must outlive the launches.
template <typename T>
class Descriptors {
 public:
  std::vector<T> items;

  bool fit_parameters() const { return items.size() <= tuning::kItemsInParameters; }
  // Copies the items to the device: what list<InMemory>() asks for. They must not change any more.
  Status upload(Context& context) {
    const std::size_t bytes = items.size() * sizeof(T);
    memory_ = context.allocate(bytes);
    if (memory_.data == nullptr) {
      return resource_exhausted("no device memory for the ", bytes, " bytes that describe ",
                                items.size(), " features");
    }
    // Out of pageable memory: it has been read when the call returns. (The driver takes copies of up
    // to 64 KB along with the call, and may wait for the stream before larger ones.)
    return cuda_status(cudaMemcpyAsync(memory_.data, items.data(), bytes, cudaMemcpyHostToDevice,
                                       stream_of(context)),
                       "descriptors");
  }
  template <typename Where>
  typename Where::template List<T> list() const {
    typename Where::template List<T> list;
    if constexpr (std::is_same_v<Where, InParameters>) {
      std::copy(items.begin(), items.end(), list.items);
    } else {
      list.items = memory_.template as<T>();
    }
    return list;
  }

 private:
  Buffer memory_;
};

}  // namespace sok::cuda

#endif  // SOK_CUDA_DESCRIPTORS_CUH_
