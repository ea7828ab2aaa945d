// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/bag_reader.h"
#include "cc_ops/cpu/catch_up.h"
#include "cc_ops/cpu/stages.h"

namespace sok::cpu {

Status weight_gradients(Executor& executor, const LookupFeature& feature,
                        const float* output_gradient, float* gradients) {
  const Bags& bags = feature.bags;
  const std::int64_t width = feature.table->config().dimension;
  SOK_RETURN_IF_ERROR(feature.table->check_range(bags.ids, bags.ids_count()));
  catch_up(executor, *feature.table, {{bags.ids, bags.ids_count()}});
  with_row_type(feature.table->config().row_type, [&](auto row_type) {
    using T = decltype(row_type);
    executor.parallel_for(bags.bags, 100 + width, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t first = bags.begin(begin), last = bags.begin(end);
      std::vector<Row> rows(last - first);
      feature.table->find(bags.ids + first, last - first, rows.data());
      BagReader<T> reader(*feature.table, bags, feature.max_norm, first, last, rows.data());
      bag_weight_gradients(reader, bags, begin, end, output_gradient, width, gradients);
    });
  });
  return {};
}

}  // namespace sok::cpu
