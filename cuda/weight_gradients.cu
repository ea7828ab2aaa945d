// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The gradients of ids' weights.
#include "cc_ops/core/combine.h"
#include "cuda/features.cuh"
#include "cuda/launch.cuh"
#include "cuda/lookup_rows.cuh"
#include "cuda/resolve.cuh"
#include "cuda/stages.h"
#include "cuda/tuning.h"
#include "cuda/vec.cuh"

namespace sok::cuda {
namespace {

// One tile a bag: the dot products of the output's gradient with each row, then the weights'
// gradients.
template <typename T, int V>
__global__ void __launch_bounds__(tuning::kBlock)
    weight_gradients_kernel(const __grid_constant__ FeatureArgs feature,
                            const float* output_gradient, float* gradients) {
  const Bags& bags = feature.bags;
  const Tile tile(feature.lanes);
  const std::int64_t first = thread_index() / 32 * tile.tiles + tile.number;
  for (std::int64_t bag = first; bag < bags.bags; bag += thread_count() / 32 * tile.tiles) {
    const float* g = output_gradient + bag * feature.width;
    const std::int64_t begin = bags.inside(bags.begin(bag));
    const std::int64_t end = bags.inside(bags.end(bag));
    Divisor divisor;
    float dots = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const Row row = find_row(*feature.table, bags.ids[i], i);
      float dot = 0;
      for (std::int64_t c = tile.lane * V; c < feature.width; c += tile.lanes * V) {
        const Vec<V> v = read_columns<T, V>(feature, row, i, c);
        for (int k = 0; k < V; ++k) dot += g[c + k] * v.x[k];
      }
      dot = tile.sum(dot);
      if (feature.max_norm > 0) dot *= norm_scale<T, V>(feature, tile, row, i);
      const float w = bags.weight(i);
      divisor.add(bags.combiner, w);
      dots += w * dot;
      if (tile.lane == 0) gradients[i] = dot;
    }
    if (tile.lane != 0) continue;
    const float scale = divisor.scale(bags.combiner);
    for (std::int64_t i = begin; i < end; ++i) {
      gradients[i] =
          weight_gradient(bags.combiner, scale, bags.weight(i), gradients[i], scale * dots);
    }
  }
}

}  // namespace

Status weight_gradients(Context& context, const LookupFeature& feature,
                        const float* output_gradient, float* gradients) {
  const TableConfig& config = feature.table->config();
  const int v = config.dimension % 4 == 0 ? 4 : 1;
  FeatureArgs args;
  SOK_RETURN_IF_ERROR(describe(context, feature, lanes_for(config.dimension, v), &args));
  const std::int64_t threads = feature.bags.bags * args.lanes;
  return with_row_type(config.row_type, [&](auto type) {
    using T = decltype(type);
    return launch(context, "weight_gradients",
                  v == 4 ? weight_gradients_kernel<T, 4> : weight_gradients_kernel<T, 1>, threads,
                  tuning::kBlock, args, output_gradient, gradients);
  });
}

}  // namespace sok::cuda
