// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "cc_ops/cpu/stages.h"
#include "cc_ops/cpu/vector_ops.h"

namespace sok::cpu {
namespace {

// The vectors of one example as floats: where they are, or in scratch memory.
template <typename T>
class Example {
 public:
  explicit Example(const Interaction& call)
      : call_(call), scratch_(call.count() * call.width), rows_(call.count()) {}

  const std::vector<const float*>& rows(std::int64_t at) {
    for (int i = 0; i < call_.count(); ++i) {
      rows_[i] = direct_or_converted(static_cast<const T*>(call_.vectors[i]) + at * call_.width,
                                     call_.width, scratch_.data() + i * call_.width);
    }
    return rows_;
  }

 private:
  const Interaction& call_;
  std::vector<float> scratch_;
  std::vector<const float*> rows_;
};

}  // namespace

void dot_interaction(Executor& executor, const Interaction& call, void* products) {
  const int count = call.count();
  with_row_type(call.type, [&](auto type) {
    using T = decltype(type);
    const std::int64_t cost = (pair_count(count) + count) * call.width / 4;
    executor.parallel_for(call.batch, cost, [&](std::int64_t begin, std::int64_t end) {
      Example<T> example(call);
      for (std::int64_t b = begin; b < end; ++b) {
        const std::vector<const float*>& rows = example.rows(b);
        T* out = static_cast<T*>(products) + b * call.columns();
        for (int i = 0; i < call.beside; ++i) {
          const T* from = static_cast<const T*>(call.vectors[i]) + b * call.width;
          out = std::copy(from, from + call.width, out);
        }
        for (int i = 0; i < count; ++i) {
          for (int j = i + 1; j < count; ++j) {
            *out++ = from_float<T>(dot(rows[i], rows[j], call.width));
          }
        }
      }
    });
  });
}

void dot_interaction_gradients(Executor& executor, const Interaction& call, const void* gradient,
                               const std::vector<void*>& gradients) {
  const int count = call.count();
  const std::int64_t width = call.width;
  with_row_type(call.type, [&](auto type) {
    using T = decltype(type);
    const std::int64_t cost = count * (count + 1) * width / 4;
    executor.parallel_for(call.batch, cost, [&](std::int64_t begin, std::int64_t end) {
      Example<T> example(call);
      std::vector<float> of_pairs(count), sum(width), copied(width);
      for (std::int64_t b = begin; b < end; ++b) {
        const std::vector<const float*>& rows = example.rows(b);
        const T* of_copies = static_cast<const T*>(gradient) + b * call.columns();
        const T* of_products = of_copies + call.copied();
        for (int i = 0; i < count; ++i) {
          for (int j = 0; j < count; ++j) {
            of_pairs[j] = i == j ? 0.0f : to_float(of_products[pair_place(i, j, count)]);
          }
          sum_rows(rows.data(), of_pairs.data(), count, width, true, sum.data());
          if (i < call.beside) {
            add_scaled(direct_or_converted(of_copies + i * width, width, copied.data()), 1.0f,
                       width, sum.data());
          }
          convert(sum.data(), width, static_cast<T*>(gradients[i]) + b * width);
        }
      }
    });
  });
}

}  // namespace sok::cpu
