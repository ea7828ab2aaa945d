// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/merge.h"

#include <algorithm>
#include <cmath>

#include "cc_ops/core/dedupe.h"
#include "cc_ops/core/hash.h"
#include "cc_ops/cpu/catch_up.h"
#include "cc_ops/cpu/stages.h"
#include "cc_ops/cpu/vector_ops.h"

namespace sok::cpu {
namespace {

// Below this many ids a second thread costs more than it brings.
constexpr std::int64_t kIdsAChunk = 4096;
// Ids of a part: its map of keys and what it sorts stay in the cache.
constexpr std::int64_t kIdsAPart = 4096;
constexpr std::int64_t kMostParts = 0xffff;
constexpr std::uint16_t kNoPart = 0xffff;
// Gradients on their way into the cache while others are summed.
constexpr std::ptrdiff_t kSharesAhead = 16;

IdRange range_of(const Table& table) { return {table.config().rows, table.config().out_of_range}; }

}  // namespace

Merge::Merge(Executor& executor, const Table& table, std::vector<MergeFeature> features,
             std::int64_t width)
    : table_(table), features_(std::move(features)), width_(width) {
  std::vector<BagTask> tasks;
  std::int64_t ids = 0;
  for (std::size_t f = 0; f < features_.size(); ++f) {
    split_bags(f, features_[f].bags, &tasks);
    ids += features_[f].bags.ids_count();
  }
  const auto task_count = static_cast<std::int64_t>(tasks.size());
  const std::int64_t chunk_count =
      std::clamp<std::int64_t>(std::min(ids / kIdsAChunk, task_count), 1, executor.threads());
  const std::int64_t part_count = std::clamp<std::int64_t>(ids / kIdsAPart, 1, kMostParts);
  parts_.resize(part_count);
  std::vector<Chunk> chunks(chunk_count);
  executor.parallel_for(chunk_count, ids * 8 / chunk_count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      distribute(tasks.data() + task_count * c / chunk_count,
                 tasks.data() + task_count * (c + 1) / chunk_count, &chunks[c]);
    }
  });
  executor.parallel_for(part_count, ids * 8 / part_count, [&](std::int64_t begin, std::int64_t end) {
    KeyMap numbers(0);
    for (std::int64_t p = begin; p < end; ++p) {
      number_keys(chunks, static_cast<std::size_t>(p), &numbers);
    }
  });
  for (const Chunk& chunk : chunks) dropped_ |= chunk.dropped;
  for (Part& part : parts_) {
    part.first = count_;
    count_ += part.count();
  }
}

void Merge::distribute(const BagTask* first, const BagTask* last, Chunk* chunk) const {
  const IdRange range = range_of(table_);
  const auto parts = static_cast<std::uint32_t>(parts_.size());
  std::int64_t ids = 0;
  for (const BagTask* task = first; task != last; ++task) {
    const Bags& bags = features_[task->feature].bags;
    ids += bags.begin(task->last_bag) - bags.begin(task->first_bag);
  }
  // Sorting by counting keeps the order of the batch within a part.
  std::unique_ptr<std::uint16_t[]> part_of(new std::uint16_t[ids]);
  chunk->begin.assign(parts + 1, 0);
  std::int64_t at = 0;
  for (const BagTask* task = first; task != last; ++task) {
    const Bags& bags = features_[task->feature].bags;
    for (std::int64_t i = bags.begin(task->first_bag); i < bags.begin(task->last_bag); ++i, ++at) {
      Key key = bags.ids[i];
      if (!range.target(&key)) {
        chunk->dropped = true;
        part_of[at] = kNoPart;
        continue;
      }
      const std::uint32_t part = scale_to(mix64(static_cast<std::uint64_t>(key)), parts);
      part_of[at] = static_cast<std::uint16_t>(part);
      ++chunk->begin[part + 1];
    }
  }
  for (std::uint32_t p = 0; p < parts; ++p) chunk->begin[p + 1] += chunk->begin[p];
  std::vector<std::uint32_t> next(chunk->begin.begin(), chunk->begin.end() - 1);
  chunk->entries.reset(new Entry[chunk->begin[parts]]);
  at = 0;
  for (const BagTask* task = first; task != last; ++task) {
    const MergeFeature& feature = features_[task->feature];
    const Bags& bags = feature.bags;
    const char* gradient = static_cast<const char*>(feature.gradient.data);
    const std::int64_t row_bytes = width_ * row_type_bytes(feature.gradient.type);
    for (std::int64_t bag = task->first_bag; bag < task->last_bag; ++bag) {
      const std::int64_t begin = bags.begin(bag), end = bags.end(bag);
      if (begin == end) continue;
      const float scale = bags.scale(bag);
      for (std::int64_t i = begin; i < end; ++i, ++at) {
        if (part_of[at] == kNoPart) continue;
        Entry& entry = chunk->entries[next[part_of[at]]++];
        entry.key = bags.ids[i];
        range.target(&entry.key);
        entry.gradient = gradient + bag * row_bytes;
        // A divisor of 0: the ids still belong to the batch, with a zero gradient.
        entry.scale = scale == 0.0f ? 0.0f : scale * bags.weight(i);
        entry.feature = static_cast<std::uint32_t>(task->feature);
      }
    }
  }
}

void Merge::number_keys(const std::vector<Chunk>& chunks, std::size_t number, KeyMap* numbers) {
  std::int64_t count = 0;
  for (const Chunk& chunk : chunks) count += chunk.begin[number + 1] - chunk.begin[number];
  numbers->reset(count);
  std::unique_ptr<std::uint32_t[]> key_of(new std::uint32_t[count]);
  Part& part = parts_[number];
  std::int64_t at = 0;
  for (const Chunk& chunk : chunks) {
    for (std::uint32_t e = chunk.begin[number]; e < chunk.begin[number + 1]; ++e, ++at) {
      const Key key = chunk.entries[e].key;
      key_of[at] = numbers->number(key, mix64(static_cast<std::uint64_t>(key)));
    }
  }
  part.keys = numbers->keys();
  // Shares by key, in the order of the batch: begin[i + 1] is where key i's next share goes, and in the
  // end where they stop.
  part.begin.assign(part.keys.size() + 2, 0);
  for (std::int64_t i = 0; i < count; ++i) ++part.begin[key_of[i] + 2];
  for (std::size_t i = 2; i < part.begin.size(); ++i) part.begin[i] += part.begin[i - 1];
  part.shares.reset(new Part::Share[count]);
  at = 0;
  for (const Chunk& chunk : chunks) {
    for (std::uint32_t e = chunk.begin[number]; e < chunk.begin[number + 1]; ++e, ++at) {
      const Entry& entry = chunk.entries[e];
      part.shares[part.begin[key_of[at] + 1]++] = {entry.gradient, entry.scale, entry.feature};
    }
  }
}

Status Merge::check() const {
  if (!dropped_) return {};
  for (const MergeFeature& feature : features_) {
    SOK_RETURN_IF_ERROR(table_.check_range(feature.bags.ids, feature.bags.ids_count()));
  }
  return {};
}

const float* Merge::sum(const Part& part, std::int64_t i, float* scratch) const {
  constexpr int kPiece = 32;
  const Part::Share* share = part.shares.get() + part.begin[i];
  const Part::Share* const end = part.shares.get() + part.begin[i + 1];
  const Part::Share* const last = part.shares.get() + part.begin.back();
  // Shares lie in the order in which keys are summed: those of the next keys follow.
  const auto prefetch = [this](const Part::Share* share) {
    const auto* gradient = static_cast<const char*>(share->gradient);
    for (std::int64_t byte = 0; byte < std::min<std::int64_t>(4 * width_, 1024); byte += 64) {
      __builtin_prefetch(gradient + byte);
    }
  };
  if (end - share == 1 && share->scale == 1.0f &&
      features_[share->feature].gradient.type == RowType::kFloat32) {
    prefetch(share + kSharesAhead < last ? share + kSharesAhead : share);
    return static_cast<const float*>(share->gradient);
  }
  bool start = true;
  while (share != end) {
    // As many as have gradients of one type.
    const RowType type = features_[share->feature].gradient.type;
    const void* rows[kPiece];
    float scales[kPiece];
    int count = 0;
    bool scaled = false;
    for (; share != end && count < kPiece && features_[share->feature].gradient.type == type; ++share) {
      // Not 0 * g: a gradient that is not finite must not leak through a zero divisor.
      prefetch(share + kSharesAhead < last ? share + kSharesAhead : share);
      if (share->scale == 0.0f) continue;
      rows[count] = share->gradient;
      scales[count++] = share->scale;
      scaled |= share->scale != 1.0f;
    }
    if (count == 0) continue;
    with_row_type(type, [&](auto row_type) {
      using T = decltype(row_type);
      const T* typed[kPiece];
      for (int k = 0; k < count; ++k) typed[k] = static_cast<const T*>(rows[k]);
      sum_rows(typed, scaled ? scales : nullptr, count, width_, start, scratch);
    });
    start = false;
  }
  if (start) std::fill_n(scratch, width_, 0.0f);
  return scratch;
}

void Merge::write(Executor& executor, Key* keys, float* gradients) const {
  const auto parts = static_cast<std::int64_t>(parts_.size());
  executor.parallel_for(
      parts, count_ * (10 + width_ / 4) / parts, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t p = begin; p < end; ++p) {
          const Part& part = parts_[p];
          std::copy(part.keys.begin(), part.keys.end(), keys + part.first);
          for (std::int64_t i = 0; i < part.count(); ++i) {
            float* out = gradients + (part.first + i) * width_;
            const float* sum = this->sum(part, i, out);
            if (sum != out) convert(sum, width_, out);
          }
        }
      });
}

Status max_norm_gradients(Executor& executor, Table& table, const Key* keys, std::int64_t count,
                          float max_norm, float* gradients) {
  const std::int64_t width = table.config().dimension;
  catch_up(executor, table, {{keys, count}});
  executor.parallel_for(count, 50 + width, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(width);
    for (std::int64_t i = begin; i < end; ++i) {
      Row number;
      table.find(keys + i, 1, &number);
      if (number == kNoRow) {
        table.default_row(keys[i], row.data());
      } else {
        with_row_type(table.config().row_type, [&](auto type) {
          convert(table.plane<decltype(type)>(0).row(number), width, row.data());
        });
      }
      const float square = dot(row.data(), row.data(), width);
      if (square <= max_norm * max_norm) continue;
      // d/dr of r * max_norm / |r|: the part of the gradient along r vanishes.
      float* g = gradients + i * width;
      add_scaled(row.data(), -dot(row.data(), g, width) / square, width, g);
      scale_row(max_norm / std::sqrt(square), width, g);
    }
  });
  return {};
}

}  // namespace sok::cpu
