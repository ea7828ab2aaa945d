// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Merge: a counting sort of the batch's ids by row, and a sum over each row's segment.
//
//   number    every id gets its row's number and its rank among the ids of that row; the first of a
//             row registers it as a key
//   segment   every key's count becomes a place in the sorted order
//   scatter   every id puts the address of its bag's gradient, and its coefficient, into its place
//   reduce    a tile a key adds up the segment in registers and writes the sum once
//
// The number of a row is the row itself in a static table. In a hash table, which merging must not
// change, it is the number that a scratch index gives to the key.
#include <cub/block/block_scan.cuh>

#include "cuda/fixed_order.cuh"
#include "cuda/launch.cuh"
#include "cuda/merge.cuh"
#include "cuda/resolve_features.cuh"
#include "cuda/stages.h"
#include "cuda/vec.cuh"

namespace sok::cuda {
namespace {

// Scratch of one merge, for all ids of all features.
struct MergeScratch {
  IndexRef index;        // of a hash table's keys
  std::uint32_t* tags;   // by number: how many ids, then the segment's place
  Row* numbers;          // by id
  std::uint32_t* ranks;  // by id
  Key* keys;             // by key: in the order of registration
  Row* key_numbers;      // by key, of a static table
  uint2* segments;       // by key: place and count
  unsigned long long* key_count;
  unsigned long long* placed;  // ids that have a segment
  const void** sources;        // by place: a bag's gradient
  float* coefficients;         // by place; null: all are 1
};

template <typename Where>
__global__ void number_kernel(const __grid_constant__ FeatureLaunch<Where> args,
                              MergeScratch scratch) {
  // Whole warps go round together: they insert together.
  const std::int64_t padded = (args.ids + 31) / 32 * 32;
  for (std::int64_t p = thread_index(); p < padded; p += thread_count()) {
    const bool has_id = p < args.ids;
    const FeatureArgs& feature = args.find(&FeatureArgs::first_id, has_id ? p : args.ids - 1);
    const bool is_static = feature.table->is_static();
    const std::int64_t i = p - feature.first_id;
    const Key id = has_id ? feature.bags.ids[i] : 0;
    const auto number_in_index = [&](std::int64_t k) {
      scratch.keys[k] = id;
      return static_cast<Row>(k);
    };
    const FoundOrInserted found =
        find_or_insert(has_id && !is_static, scratch.index, id, scratch.index.hash(id),
                       scratch.key_count, number_in_index);
    const Row number = has_id && is_static ? static_row(*feature.table, id, i) : found.row;
    const bool counts = number != kNoRow;
    std::uint32_t rank = 0;
    if (counts) rank = atomicAdd(scratch.tags + number, 1u);
    const bool first_of_row = counts && rank == 0 && is_static;
    const std::int64_t k = take_number(first_of_row, scratch.key_count);
    if (first_of_row) {
      scratch.keys[k] = number;
      scratch.key_numbers[k] = number;
    }
    if (has_id) scratch.numbers[p] = number;
    if (counts) scratch.ranks[p] = rank;
  }
}

__global__ void __launch_bounds__(tuning::kBlock)
    segment_kernel(MergeScratch scratch, bool is_static, std::int64_t most) {
  using Scan = cub::BlockScan<std::uint32_t, tuning::kBlock>;
  __shared__ typename Scan::TempStorage storage;
  __shared__ unsigned long long block_place;
  const auto keys = static_cast<std::int64_t>(*scratch.key_count);
  const std::int64_t padded = (most + blockDim.x - 1) / blockDim.x * blockDim.x;
  for (std::int64_t k = thread_index(); k < padded; k += thread_count()) {
    const Row number = k >= keys   ? kNoRow
                       : is_static ? scratch.key_numbers[k]
                                   : static_cast<Row>(k);
    const std::uint32_t count = number == kNoRow ? 0 : scratch.tags[number];
    std::uint32_t before = 0, total = 0;
    Scan(storage).ExclusiveSum(count, before, total);
    if (threadIdx.x == 0)
      block_place = atomicAdd(scratch.placed, static_cast<unsigned long long>(total));
    __syncthreads();
    if (number != kNoRow) {
      const auto place = static_cast<std::uint32_t>(block_place + before);
      scratch.segments[k] = {place, count};
      scratch.tags[number] = place;
    }
    __syncthreads();
  }
}

template <typename Where>
__global__ void scatter_kernel(const __grid_constant__ FeatureLaunch<Where> args,
                               MergeScratch scratch) {
  for (std::int64_t p = thread_index(); p < args.ids; p += thread_count()) {
    const FeatureArgs& feature = args.find(&FeatureArgs::first_id, p);
    const Row number = scratch.numbers[p];
    if (number == kNoRow) continue;
    const std::int64_t i = p - feature.first_id;
    const std::int64_t bag = bag_of(feature.bags, i);
    const std::uint32_t place = scratch.tags[number] + scratch.ranks[p];
    const int bytes = feature.columns.type == RowType::kFloat32 ? 4 : 2;
    scratch.sources[place] =
        static_cast<const char*>(feature.columns.data) + bag * feature.width * bytes;
    if (scratch.coefficients == nullptr) continue;
    const float scale = feature.bags.scale(bag);
    scratch.coefficients[place] = scale == 0.0f ? 0.0f : scale * feature.bags.weight(i);
  }
}

// See fixed_order.cuh. Also where each key first occurs.
__global__ void order_kernel(MergeScratch scratch, std::int64_t ids, unsigned long long* order) {
  for (std::int64_t i = thread_index(); i < ids; i += thread_count()) {
    const Row number = scratch.numbers[i];
    order[i] = number == kNoRow ? kNotOrdered : in_order(scratch.tags[number], i);
  }
}

__global__ void first_position_kernel(MergeScratch scratch, std::int64_t ids,
                                      std::uint32_t* by_place) {
  for (std::int64_t i = thread_index(); i < ids; i += thread_count()) {
    const Row number = scratch.numbers[i];
    if (number == kNoRow || scratch.ranks[i] != 0) continue;
    by_place[scratch.tags[number]] = static_cast<std::uint32_t>(i);
  }
}

__global__ void position_of_key_kernel(MergeScratch scratch, std::int64_t keys,
                                       const std::uint32_t* by_place, std::uint32_t* positions) {
  for (std::int64_t k = thread_index(); k < keys; k += thread_count()) {
    positions[k] = by_place[scratch.segments[k].x];
  }
}

__global__ void permute_kernel(MergeScratch scratch, std::int64_t keys,
                               const std::uint32_t* numbers, Key* to_keys, uint2* to_segments) {
  for (std::int64_t k = thread_index(); k < keys; k += thread_count()) {
    to_keys[k] = scratch.keys[numbers[k]];
    to_segments[k] = scratch.segments[numbers[k]];
  }
}

template <int V>
__global__ void __launch_bounds__(tuning::kBlock)
    reduce_kernel(MergeScratch scratch, std::int64_t keys, std::int64_t width, int lanes,
                  RowType type, float* gradients) {
  const Tile tile(lanes);
  const std::int64_t tiles = thread_count() / 32 * tile.tiles;
  for (std::int64_t k = thread_index() / 32 * tile.tiles + tile.number; k < keys; k += tiles) {
    const uint2 segment = scratch.segments[k];
    for (std::int64_t c = tile.lane * V; c < width; c += lanes * V) {
      Vec<V> total{};
      for (std::uint32_t j = 0; j < segment.y; ++j) {
        const float w =
            scratch.coefficients == nullptr ? 1.0f : scratch.coefficients[segment.x + j];
        if (w == 0.0f) continue;
        const Vec<V> g = load_as<V>(type, scratch.sources[segment.x + j], c);
        for (int i = 0; i < V; ++i) total.x[i] += w * g.x[i];
      }
      store<float, V>(gradients + k * width + c, total);
    }
  }
}

// Static tables lend their rows' tags; they get them back as zeros.
__global__ void reset_kernel(MergeScratch scratch, std::int64_t keys) {
  for (std::int64_t k = thread_index(); k < keys; k += thread_count()) {
    scratch.tags[scratch.key_numbers[k]] = 0;
  }
}

template <typename T>
__global__ void max_norm_kernel(const TableView* table, const Key* keys, std::int64_t count,
                                float max_norm, float* gradients) {
  const Tile tile(32);
  for (std::int64_t k = thread_index() / 32; k < count; k += thread_count() / 32) {
    const Row row = find_row(*table, keys[k], k);
    const T* values = row == kNoRow ? nullptr : table->values<T>().row(row);
    float* g = gradients + k * table->width;
    const auto value = [&](std::int64_t c) {
      return row == kNoRow ? default_columns<T, 1>(*table, keys[k], c).x[0] : to_float(values[c]);
    };
    float square = 0, dot = 0;
    for (std::int64_t c = tile.lane; c < table->width; c += 32) {
      square += value(c) * value(c);
      dot += value(c) * g[c];
    }
    square = tile.sum(square);
    dot = tile.sum(dot);
    if (square <= max_norm * max_norm) continue;
    const float scale = max_norm / sqrtf(square);
    for (std::int64_t c = tile.lane; c < table->width; c += 32) {
      g[c] = (g[c] - value(c) * dot / square) * scale;
    }
  }
}

// Puts the ids of each segment, and then the keys, into the order of the batch.
Status rank_ids(Context& context, const MergeScratch& scratch, Order& order, std::int64_t ids) {
  SOK_RETURN_IF_ERROR(
      launch(context, "order", order_kernel, ids, tuning::kBlock, scratch, ids, order.order));
  return rank_in_order(context, order, ids, scratch.ranks);
}

Status order_keys(Context& context, MergeScratch* scratch, Arena* arena, std::int64_t keys,
                  const std::uint32_t* first_positions) {
  std::uint32_t *positions = nullptr, *numbers = nullptr;
  Key* ordered_keys = nullptr;
  uint2* ordered_segments = nullptr;
  arena->ask(keys, &positions);
  arena->ask(keys, &numbers);
  arena->ask(keys, &ordered_keys);
  arena->ask(keys, &ordered_segments);
  SOK_RETURN_IF_ERROR(arena->allocate("Merge"));
  SOK_RETURN_IF_ERROR(launch(context, "position_of_key", position_of_key_kernel, keys,
                             tuning::kBlock, *scratch, keys, first_positions, positions));
  SOK_RETURN_IF_ERROR(sort_by_position(context, positions, keys, numbers));
  SOK_RETURN_IF_ERROR(launch(context, "permute", permute_kernel, keys, tuning::kBlock, *scratch,
                             keys, numbers, ordered_keys, ordered_segments));
  scratch->keys = ordered_keys;
  scratch->segments = ordered_segments;
  return {};
}

}  // namespace

Status merge(Context& context, Table* table, const std::vector<MergeFeature>& features,
             const std::function<Status(std::int64_t, Key**, float**)>& allocate) {
  const bool is_static = table->config().is_static();
  const std::int64_t width = table->config().dimension;
  std::int64_t ids = 0;
  bool plain = true;
  Features described;
  for (const MergeFeature& feature : features) {
    FeatureArgs args;
    SOK_RETURN_IF_ERROR(table->device_view(context, &args.table));
    args.width = width;
    args.bags = feature.bags;
    args.columns = feature.gradient;
    ids += feature.bags.ids_count();
    plain = plain && feature.bags.combiner == Combiner::kSum && feature.bags.weights == nullptr;
    if (feature.bags.ids_count() > 0) described.add(args);
  }
  if (ids > 0xffffffffLL)
    return invalid_argument("Merge: ", ids, " ids in one batch, at most 2^32 - 1");

  cudaStream_t stream = stream_of(context);
  Arena arena(context);
  ScratchIndex keys_index;
  MergeScratch scratch{};
  unsigned long long* counters = nullptr;
  std::uint32_t* first_positions = nullptr;
  Order order;
  arena.ask(ids, &scratch.numbers);
  arena.ask(ids, &scratch.ranks);
  arena.ask(ids, &scratch.keys);
  arena.ask(ids, &scratch.segments);
  arena.ask(ids, &scratch.sources);
  if (!plain) arena.ask(ids, &scratch.coefficients);
  if (is_static) arena.ask(ids, &scratch.key_numbers);
  if (!is_static) arena.ask(ids, &scratch.tags);
  if (context.fixed_order()) {
    arena.ask(ids, &first_positions);
    SOK_RETURN_IF_ERROR(order.ask(ids, &arena));
  }
  arena.ask(2, &counters);
  SOK_RETURN_IF_ERROR(arena.allocate("Merge"));
  SOK_RETURN_IF_ERROR(described.prepare(context));
  scratch.key_count = counters;
  scratch.placed = counters + 1;
  if (is_static) {
    SOK_RETURN_IF_ERROR(table->row_tags(context, &scratch.tags));
  } else {
    SOK_RETURN_IF_ERROR(ScratchIndex::create(context, ids, &keys_index));
    scratch.index = keys_index.index;
  }
  SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(counters, 0, 2 * sizeof(unsigned long long), stream));
  if (!is_static) {
    SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(scratch.tags, 0, ids * sizeof(std::uint32_t), stream));
  }

  TagsGuard guard(context);
  if (is_static) guard.add(table);
  SOK_RETURN_IF_ERROR(described.launch([&](auto where, const auto& args) {
    return launch(context, "number", number_kernel<decltype(where)>, args.ids, tuning::kBlock, args,
                  scratch);
  }));
  SOK_RETURN_IF_ERROR(
      launch(context, "segment", segment_kernel, ids, tuning::kBlock, scratch, is_static, ids));
  if (first_positions != nullptr) {
    SOK_RETURN_IF_ERROR(rank_ids(context, scratch, order, ids));
    SOK_RETURN_IF_ERROR(launch(context, "first_position", first_position_kernel, ids,
                               tuning::kBlock, scratch, ids, first_positions));
  }
  SOK_RETURN_IF_ERROR(described.launch([&](auto where, const auto& args) {
    return launch(context, "scatter", scatter_kernel<decltype(where)>, args.ids, tuning::kBlock,
                  args, scratch);
  }));

  unsigned long long count = 0;
  SOK_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(&count, scratch.key_count, sizeof count, cudaMemcpyDeviceToHost, stream));
  SOK_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
  const auto keys = static_cast<std::int64_t>(count);
  Key* out_keys = nullptr;
  float* gradients = nullptr;
  SOK_RETURN_IF_ERROR(allocate(keys, &out_keys, &gradients));
  if (is_static) {
    SOK_RETURN_IF_ERROR(
        launch(context, "reset", reset_kernel, keys, tuning::kBlock, scratch, keys));
  }
  guard.done();
  if (keys == 0) return table->check_offending(context);
  Arena ordered(context);
  if (first_positions != nullptr) {
    SOK_RETURN_IF_ERROR(order_keys(context, &scratch, &ordered, keys, first_positions));
  }
  SOK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(out_keys, scratch.keys, keys * sizeof(Key),
                                           cudaMemcpyDeviceToDevice, stream));
  const RowType type = described.items()[0].columns.type;
  const int v = width % 4 == 0 ? 4 : 1;
  const int lanes = lanes_for(width, v);
  SOK_RETURN_IF_ERROR(launch(context, "reduce", v == 4 ? reduce_kernel<4> : reduce_kernel<1>,
                             keys * lanes, tuning::kBlock, scratch, keys, width, lanes, type,
                             gradients));
  return table->check_offending(context);
}

Status max_norm_gradients(Context& context, Table* table, const Key* keys, std::int64_t count,
                          float max_norm, float* gradients) {
  const TableView* view = nullptr;
  SOK_RETURN_IF_ERROR(table->device_view(context, &view));
  return with_row_type(table->config().row_type, [&](auto type) {
    return launch(context, "max_norm", max_norm_kernel<decltype(type)>, count * 32, tuning::kBlock,
                  view, keys, count, max_norm, gradients);
  });
}

}  // namespace sok::cuda
