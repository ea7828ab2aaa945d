// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "cc_ops/core/hash.h"
#include "cc_ops/cpu/key_map.h"
#include "cc_ops/cpu/rank_stages.h"

namespace sok::cpu {
namespace {

// Below this many ids a second thread costs more than it brings.
constexpr std::int64_t kIdsAPart = 4096;
constexpr std::int64_t kLeftOut = -1;

}  // namespace

Dedupe::Dedupe(Executor& executor, IdRange range, std::vector<DedupeFeature> features)
    : executor_(executor), range_(range), features_(std::move(features)) {
  std::int64_t ids = 0;
  for (const DedupeFeature& feature : features_) ids += feature.count;
  const auto parts =
      static_cast<std::uint32_t>(std::clamp<std::int64_t>(ids / kIdsAPart, 1, executor.threads()));
  keys_.resize(parts);
  first_.assign(parts + 1, 0);
  executor.parallel_for(parts, ids * 10 / parts, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      number_keys(static_cast<std::uint32_t>(part), ids);
    }
  });
  for (std::uint32_t part = 0; part < parts; ++part) {
    first_[part + 1] = first_[part] + static_cast<std::int64_t>(keys_[part].size());
  }
}

// Each key belongs to one part, by its hash; a part writes the slots of its keys' ids.
void Dedupe::number_keys(std::uint32_t part, std::int64_t ids) {
  const auto parts = static_cast<std::uint32_t>(keys_.size());
  KeyMap numbers(ids / parts);
  for (const DedupeFeature& feature : features_) {
    for (std::int64_t i = 0; i < feature.count; ++i) {
      Key key = feature.ids[i];
      if (!range_.target(&key)) {
        if (part == 0) feature.slots[i] = kLeftOut;
        continue;
      }
      const std::uint64_t hash = mix64(static_cast<std::uint64_t>(key));
      if (parts > 1 && scale_to(hash, parts) != part) continue;
      feature.slots[i] = numbers.number(key, hash);
    }
  }
  keys_[part] = numbers.keys();
}

void Dedupe::write(Key* keys) const {
  const auto parts = static_cast<std::uint32_t>(keys_.size());
  for (std::uint32_t part = 0; part < parts; ++part) {
    std::copy(keys_[part].begin(), keys_[part].end(), keys + first_[part]);
  }
  if (parts == 1) return;
  for (const DedupeFeature& feature : features_) {
    executor_.parallel_for(feature.count, 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        if (feature.slots[i] == kLeftOut) continue;
        Key key = feature.ids[i];
        range_.target(&key);
        feature.slots[i] += first_[scale_to(mix64(static_cast<std::uint64_t>(key)), parts)];
      }
    });
  }
}

bool Dedupe::refused(std::size_t* feature, std::int64_t* position) const {
  if (range_.rows < 0 || range_.policy != OutOfRange::kError) return false;
  for (std::size_t f = 0; f < features_.size(); ++f) {
    for (std::int64_t i = 0; i < features_[f].count; ++i) {
      if (range_.contains(features_[f].ids[i])) continue;
      *feature = f;
      *position = i;
      return true;
    }
  }
  return false;
}

}  // namespace sok::cpu
