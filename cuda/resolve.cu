// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/launch.cuh"
#include "cuda/resolve.cuh"
#include "cuda/resolve_features.cuh"
#include "cuda/stages.h"

namespace sok::cuda {
namespace {

template <bool kInsert>
__global__ void resolve_kernel(const TableView* table, const Key* ids, std::int64_t count,
                               Row* rows) {
  // Whole warps go round together: they insert together.
  const std::int64_t padded = (count + 31) / 32 * 32;
  for (std::int64_t i = thread_index(); i < padded; i += thread_count()) {
    const bool has_id = i < count;
    const Key id = has_id ? ids[i] : 0;
    FoundOrInserted found{kNoRow, false};
    if constexpr (kInsert) {
      found = insert_row(*table, has_id, id, i);
      initialize_inserted(*table, found.inserted, id, found.row);
    } else if (has_id) {
      found.row = find_row(*table, id, i);
    }
    if (has_id && rows != nullptr) rows[i] = found.row;
  }
}

// Inserts the ids that the table does not have into a scratch index, to count the different ones.
__global__ void count_new_kernel(const TableView* table, const Key* ids, std::int64_t count,
                                 IndexRef seen, unsigned long long* distinct) {
  const std::int64_t padded = (count + 31) / 32 * 32;
  for (std::int64_t i = thread_index(); i < padded; i += thread_count()) {
    const Key id = i < count ? ids[i] : 0;
    const bool is_new = i < count && find_row(*table, id, i) == kNoRow;
    find_or_insert(is_new, seen, id, seen.hash(id), distinct,
                   [](std::int64_t number) { return static_cast<Row>(number); });
  }
}

}  // namespace

Status ScratchIndex::create(Context& context, std::int64_t keys, ScratchIndex* scratch) {
  // At most half full, and of as many slots as their numbers can tell apart.
  if (keys > kMostRows / 2) {
    return invalid_argument(keys, " ids in one batch, at most ", kMostRows / 2,
                            " can be told apart on a GPU; use smaller batches");
  }
  const auto groups = static_cast<std::uint32_t>(keys / (kGroup / 2) + 1);
  const std::size_t bytes = std::size_t{groups} * kGroup;
  scratch->control = context.allocate(bytes);
  scratch->slots = context.allocate(bytes * sizeof(Slot));
  scratch->count = context.allocate(sizeof(unsigned long long));
  if (!scratch->control.data || !scratch->slots.data || !scratch->count.data) {
    return resource_exhausted("no device memory to number ", keys,
                              " ids: ", bytes * (1 + sizeof(Slot)), " bytes asked for");
  }
  SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(scratch->control.data, static_cast<int>(kEmptyByte),
                                           bytes, stream_of(context)));
  SOK_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(scratch->count.data, 0, sizeof(unsigned long long), stream_of(context)));
  scratch->index.control = scratch->control.as<std::uint64_t>();
  scratch->index.slots = scratch->slots.as<Slot>();
  scratch->index.groups = groups;
  return {};
}

Status resolve(Context& context, Table* table, const Key* ids, std::int64_t count, bool insert,
               Row* rows) {
  const TableView* view = nullptr;
  SOK_RETURN_IF_ERROR(table->device_view(context, &view));
  return launch(context, "resolve", insert ? resolve_kernel<true> : resolve_kernel<false>, count,
                tuning::kBlock, view, ids, count, rows);
}

Status reserve(Context& context, Table* table, const std::vector<IdSpan>& spans) {
  std::int64_t ids = 0;
  for (const IdSpan& span : spans) ids += span.count;
  const Status bound = table->reserve(context, ids);
  if (bound.ok() || table->config().max_capacity == 0 || bound.code() != Code::kResourceExhausted) {
    return bound;
  }
  // The batch would not fit if all of its ids were new: count those that are.
  ScratchIndex scratch;
  SOK_RETURN_IF_ERROR(ScratchIndex::create(context, ids, &scratch));
  const TableView* view = nullptr;
  SOK_RETURN_IF_ERROR(table->device_view(context, &view));
  for (const IdSpan& span : spans) {
    SOK_RETURN_IF_ERROR(launch(context, "count_new", count_new_kernel, span.count, tuning::kBlock,
                               view, span.ids, span.count, scratch.index,
                               scratch.count.as<unsigned long long>()));
  }
  unsigned long long distinct = 0;
  SOK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(&distinct, scratch.count.data, sizeof distinct,
                                           cudaMemcpyDeviceToHost, stream_of(context)));
  SOK_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_of(context)));
  return table->reserve(context, static_cast<std::int64_t>(distinct));
}

}  // namespace sok::cuda
