// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Merge and update in one pass, for all tables: where nothing looks at the gradients of rows, they
// are summed in registers and go straight into the optimizer. No summed gradient is stored but
// those of rows that very many ids have, and the host waits for nothing.
//
//   collect   every id finds its row (a new one is inserted) and its rank among the row's ids
//   segment   the count of every row with several ids becomes a place; long segments are cut
//   singles   every id that is alone with its row updates it; every other id puts the address of
//             its bag's gradient into its place
//   segments  a tile a row: the sum of its segment, then the optimizer; of a long one a block sums
//             a piece, and the block that is the last to have done so updates the row
#include <cub/block/block_scan.cuh>
#include <map>

#include "cuda/fixed_order.cuh"
#include "cuda/launch.cuh"
#include "cuda/merge.cuh"
#include "cuda/merge_update.cuh"
#include "cuda/resolve_features.cuh"
#include "cuda/stages.h"

namespace sok::cuda {
namespace {

// Ranks of a block's ids among those of their rows. The block counts its own ids of a row in shared
// memory first: of a row that many ids have, the device would otherwise serve one atomic operation
// after the other.
class BlockRanks {
 public:
  // All threads call it together. `tag`: that of the id's row, null without one.
  __device__ __forceinline__ std::uint32_t take(std::uint32_t* tag) {
    __syncthreads();  // what a call before this one left has been read
    for (int s = threadIdx.x; s < kSlots; s += blockDim.x) slots_[s] = {};
    __syncthreads();
    int slot = 0;
    std::uint32_t rank = 0;
    if (tag != nullptr) {
      const auto key = reinterpret_cast<unsigned long long>(tag);
      slot = static_cast<int>((key >> 2) * 0x9e3779b97f4a7c15ULL >> (64 - kSlotBits));
      for (;; slot = (slot + 1) % kSlots) {
        const unsigned long long before = atomicCAS(&slots_[slot].tag, 0ULL, key);
        if (before == 0 || before == key) break;
      }
      rank = atomicAdd(&slots_[slot].count, 1u);
    }
    __syncthreads();
    if (tag != nullptr && rank == 0) slots_[slot].first = atomicAdd(tag, slots_[slot].count);
    __syncthreads();
    if (tag != nullptr) rank += slots_[slot].first;
    return rank;
  }

 private:
  static constexpr int kSlotBits = 9, kSlots = 1 << kSlotBits;  // twice as many as threads
  struct Slot {
    unsigned long long tag;
    std::uint32_t count, first;
  };
  Slot slots_[kSlots];
};

template <typename Where>
__global__ void __launch_bounds__(tuning::kBlock)
    collect_kernel(const __grid_constant__ FeatureLaunch<Where> args, Scratch scratch,
                   StepScalars scalars) {
  __shared__ BlockRanks ranks;
  const std::int64_t padded = (args.ids + blockDim.x - 1) / blockDim.x * blockDim.x;
  for (std::int64_t p = thread_index(); p < padded; p += thread_count()) {
    const FeatureArgs& feature = args.find(&FeatureArgs::first_id, p < args.ids ? p : args.ids - 1);
    const TableView& table = *feature.table;
    const std::int64_t i = p - feature.first_id;
    // The id is on its way while the other loads decide whether it counts.
    const Key id = p < args.ids ? feature.bags.ids[i] : 0;
    const bool has_id = p < args.ids && applies(scalars, table);
    const FoundOrInserted found = insert_row(table, has_id, id, i);
    initialize_inserted_of_any_table(feature.table, found.inserted, id, found.row);
    const std::uint32_t rank = ranks.take(found.row == kNoRow ? nullptr : feature.tags + found.row);
    if (p >= args.ids) continue;
    scratch.rows[p] = found.row;
    scratch.ranks[p] = rank;
  }
}

// Cuts a long segment into pieces. `number`: the segment's.
__device__ void cut(const Scratch& scratch, std::uint32_t number, Segment* segment) {
  const std::uint32_t pieces = segment->pieces();
  segment->first_piece = static_cast<std::uint32_t>(
      atomicAdd(&scratch.counters->pieces, static_cast<unsigned long long>(pieces)));
  for (std::uint32_t j = 0; j < pieces; ++j) {
    const std::uint32_t done = j * tuning::kPiece;
    scratch.pieces[segment->first_piece + j] = {
        segment->place + done,
        min(segment->count - done, static_cast<std::uint32_t>(tuning::kPiece)), number};
  }
}

// The id that came first to a row, of rank 0, speaks for the row.
// `kItems` ids a thread: the more, the fewer atomic operations on one counter.
template <int kItems, typename Where>
__global__ void __launch_bounds__(tuning::kBlock)
    segment_kernel(const __grid_constant__ FeatureLaunch<Where> args, Scratch scratch) {
  using Scan = cub::BlockScan<unsigned long long, tuning::kBlock>;
  __shared__ typename Scan::TempStorage storage;
  __shared__ unsigned long long block_start;
  const std::int64_t chunk = static_cast<std::int64_t>(blockDim.x) * kItems;
  for (std::int64_t base = blockIdx.x * chunk; base < args.ids; base += gridDim.x * chunk) {
    std::uint32_t* tags[kItems];
    Segment segments[kItems];
    unsigned long long counts[kItems], total = 0;
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      const std::int64_t p = base + u * blockDim.x + threadIdx.x;
      counts[u] = 0;
      if (p >= args.ids) continue;
      const Row row = scratch.rows[p];
      const std::uint32_t rank = scratch.ranks[p];
      if (row == kNoRow || rank != 0) continue;
      const FeatureArgs& feature = args.find(&FeatureArgs::first_id, p);
      tags[u] = feature.tags + row;
      const std::uint32_t ids = *tags[u];
      if (ids == 1) {
        scratch.ranks[p] = kSingle;
        *tags[u] = 0;
        continue;
      }
      segments[u] = {row, static_cast<std::uint32_t>(feature.table_number), 0, ids, 0, 0};
      counts[u] = 1ULL << 32 | ids;
    }
    // One scan an item, not one over all: neighbouring threads then write neighbouring results.
    unsigned long long before[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      unsigned long long here = 0;
      Scan(storage).ExclusiveSum(counts[u], before[u], here);
      before[u] += total;
      total += here;
      __syncthreads();
    }
    if (threadIdx.x == 0 && total != 0) {
      block_start = atomicAdd(&scratch.counters->segments_and_ids, total);
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      if (counts[u] == 0) continue;
      const unsigned long long at = block_start + before[u];
      Segment& segment = segments[u];
      segment.place = static_cast<std::uint32_t>(at);
      const auto number = static_cast<std::uint32_t>(at >> 32);
      if (segment.is_cut()) cut(scratch, number, &segment);
      scratch.segments[number] = segment;
      *tags[u] = segment.place;
    }
    __syncthreads();
  }
}

// Where each contribution to a segment would go, if they were in the order of the batch.
template <typename Where>
__global__ void order_kernel(const __grid_constant__ FeatureLaunch<Where> args, Scratch scratch,
                             unsigned long long* order) {
  for (std::int64_t i = thread_index(); i < args.ids; i += thread_count()) {
    const Row row = scratch.rows[i];
    const bool placed = row != kNoRow && scratch.ranks[i] != kSingle;
    const FeatureArgs& feature = args.find(&FeatureArgs::first_id, i);
    order[i] = placed ? in_order(feature.tags[row], i) : kNotOrdered;
  }
}

// The tables that one set of kernels updates, and their scratch memory.
struct Group {
  explicit Group(Context& context) : arena(context) {}

  Features features;
  Descriptors<UpdateArgs> tables;
  std::map<Table*, int> numbers;
  std::int64_t ids = 0, widest = 0;
  bool plain = true;
  Arena arena;
  Scratch scratch{};
  Order order;
};

// What can fail for want of memory.
Status prepare(Context& context, const Kind& kind, Group* group) {
  const std::int64_t ids = group->ids;
  if (ids >= 0xffffffffLL)
    return invalid_argument("Update: ", ids, " ids in one batch, fewer than 2^32 - 1");
  const std::int64_t pieces = ids / tuning::kPiece + ids / tuning::kAlone + 1;
  Arena& arena = group->arena;
  Scratch& scratch = group->scratch;
  arena.ask(1, &scratch.counters);
  arena.ask(ids, &scratch.rows);
  arena.ask(ids, &scratch.ranks);
  arena.ask(ids / 2, &scratch.segments);
  arena.ask(ids, &scratch.sources);
  if (!group->plain) arena.ask(ids, &scratch.coefficients);
  arena.ask(pieces, &scratch.pieces);
  arena.ask(pieces * group->widest, &scratch.partials);
  if (context.fixed_order()) SOK_RETURN_IF_ERROR(group->order.ask(ids, &arena));
  scratch.partial_width = group->widest;
  scratch.gradient_type = std::get<2>(kind);
  SOK_RETURN_IF_ERROR(group->features.prepare(context));
  if (!group->features.in_parameters()) SOK_RETURN_IF_ERROR(group->tables.upload(context));
  return arena.allocate("Update");
}

Status run(Context& context, const Kind& kind, Group& group, const StepScalars& scalars) {
  const Scratch& scratch = group.scratch;
  SOK_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(scratch.counters, 0, sizeof(Counters), stream_of(context)));
  TagsGuard guard(context);
  for (const auto& [table, number] : group.numbers) guard.add(table);
  SOK_RETURN_IF_ERROR(group.features.launch([&](auto where, const auto& args) {
    return launch(context, "collect", collect_kernel<decltype(where)>, args.ids, tuning::kBlock,
                  args, scratch, scalars);
  }));
  SOK_RETURN_IF_ERROR(group.features.launch([&](auto where, const auto& args) {
    using Where = decltype(where);
    if (args.ids < tuning::kBusyWarps * kWarp) {
      return launch(context, "segment", segment_kernel<1, Where>, args.ids, tuning::kBlock, args,
                    scratch);
    }
    return launch(context, "segment", segment_kernel<4, Where>, (args.ids + 3) / 4, tuning::kBlock,
                  args, scratch);
  }));
  if (group.order.order != nullptr) {
    SOK_RETURN_IF_ERROR(group.features.launch([&](auto where, const auto& args) {
      return launch(context, "order", order_kernel<decltype(where)>, args.ids, tuning::kBlock, args,
                    scratch, group.order.order);
    }));
    SOK_RETURN_IF_ERROR(rank_in_order(context, group.order, group.ids, scratch.ranks));
  }
  SOK_RETURN_IF_ERROR(
      apply(context, kind, group.features, group.tables, scalars, scratch, group.ids));
  guard.done();
  return {};
}

}  // namespace

Status merge_update(Context& context, const std::vector<MergeUpdate>& updates,
                    const StepScalars& scalars) {
  std::map<Kind, Group> groups;
  for (const MergeUpdate& update : updates) {
    Table& table = *update.update.table;
    const std::int64_t width = table.config().dimension;
    SOK_RETURN_IF_ERROR(table.check_offending(context));
    std::vector<IdSpan> spans;
    for (const MergeFeature& feature : update.features) {
      spans.push_back({feature.bags.ids, feature.bags.ids_count()});
    }
    const auto planes = update.update.optimizer->planes(width, update.update.initials);
    SOK_RETURN_IF_ERROR(table.attach_planes(context, planes));
    SOK_RETURN_IF_ERROR(reserve(context, &table, spans));
    UpdateArgs args;
    args.hyper = update.update.hyper;
    for (std::size_t s = 0; s < planes.size(); ++s) {
      args.states[s] = table.plane_index(planes[s].name) - 1;
    }
    SOK_RETURN_IF_ERROR(table.row_tags(context, &args.places));
    SOK_RETURN_IF_ERROR(table.device_view(context, &args.table));
    args.describe(table.view());
    const bool vectors = table.config().row_type == RowType::kFloat32 && width % 4 == 0;
    args.lanes = lanes_for(width, vectors ? 4 : 1);
    for (const MergeFeature& feature : update.features) {
      if (feature.bags.ids_count() == 0) continue;
      const Kind kind{update.update.optimizer->id, table.config().row_type, feature.gradient.type,
                      vectors, args.lanes};
      Group& group = groups.try_emplace(kind, context).first->second;
      const auto [at, added] =
          group.numbers.insert({&table, static_cast<int>(group.tables.items.size())});
      if (added) group.tables.items.push_back(args);
      FeatureArgs described;
      described.table = args.table;
      described.round = table.round();
      described.width = width;
      described.bags = feature.bags;
      described.columns = feature.gradient;
      described.tags = args.places;
      described.table_number = at->second;
      group.features.add(described);
      group.ids += feature.bags.ids_count();
      group.widest = std::max(group.widest, width);
      group.plain =
          group.plain && feature.bags.combiner == Combiner::kSum && feature.bags.weights == nullptr;
    }
  }
  // All memory before the first row changes.
  for (auto& [kind, group] : groups) SOK_RETURN_IF_ERROR(prepare(context, kind, &group));
  for (auto& [kind, group] : groups) SOK_RETURN_IF_ERROR(run(context, kind, group, scalars));
  return {};
}

}  // namespace sok::cuda
