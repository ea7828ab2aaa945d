// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "cc_ops/cpu/rank_stages.h"

namespace sok::cpu {
namespace {

constexpr std::int64_t kIdsAPiece = 16384;

}  // namespace

RouteBags::RouteBags(Executor& executor, std::uint32_t ranks, bool keep_empty,
                     std::vector<RouteBagsTable> tables, std::vector<RouteBagsFeature> features)
    : executor_(executor),
      ranks_(ranks),
      keep_empty_(keep_empty),
      tables_(std::move(tables)),
      features_(std::move(features)) {
  std::vector<std::int64_t> bags_of(tables_.size(), 0);
  std::int64_t ids = 0;
  for (std::size_t f = 0; f < features_.size(); ++f) {
    const Bags& bags = features_[f].bags;
    first_bag_.push_back(bags_of[features_[f].table]);
    first_id_.push_back(ids);
    bags_of[features_[f].table] += bags.bags;
    ids += bags.ids_count();
    const std::int64_t mean =
        std::max<std::int64_t>(1, bags.bags == 0 ? 1 : bags.ids_count() / bags.bags);
    const std::int64_t step = std::max<std::int64_t>(1, kIdsAPiece / mean);
    for (std::int64_t bag = 0; bag < bags.bags; bag += step) {
      pieces_.push_back({f, bag, std::min(bag + step, bags.bags), {}, {}});
    }
  }
  each_piece([this](Piece& piece) { count(piece); });
  // From counts to where each piece writes within its table's blocks for each rank.
  counts_.assign(ranks_ * 2 * tables_.size(), 0);
  for (Piece& piece : pieces_) {
    const std::size_t table = features_[piece.feature].table;
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      for (auto [next, block] : {std::pair(&piece.next_id[r], ids_block(r, table)),
                                 std::pair(&piece.next_part[r], parts_block(r, table))}) {
        const std::int64_t here = *next;
        *next = counts_[block];
        counts_[block] += here;
      }
    }
  }
}

std::int64_t RouteBags::ids() const {
  std::int64_t total = 0;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    for (std::size_t t = 0; t < tables_.size(); ++t) total += counts_[ids_block(r, t)];
  }
  return total;
}

std::int64_t RouteBags::parts(std::size_t table) const {
  std::int64_t total = 0;
  for (std::uint32_t r = 0; r < ranks_; ++r) total += counts_[parts_block(r, table)];
  return total;
}

void RouteBags::count(Piece& piece) const {
  const RouteBagsFeature& feature = features_[piece.feature];
  const RouteBagsTable& table = tables_[feature.table];
  piece.next_id.assign(ranks_, 0);
  piece.next_part.assign(ranks_, 0);
  std::vector<std::int64_t> last(ranks_, -1);  // the bag that was last seen to reach a rank
  for (std::int64_t bag = piece.first_bag; bag < piece.last_bag; ++bag) {
    for (std::int64_t i = feature.bags.begin(bag); i < feature.bags.end(bag); ++i) {
      Key key = feature.bags.ids[i];
      if (!table.range.target(&key)) continue;
      const std::uint32_t rank = table.placement.rank_of(key);
      ++piece.next_id[rank];
      if (last[rank] == bag) continue;
      last[rank] = bag;
      ++piece.next_part[rank];
    }
  }
  if (keep_empty_) {
    std::fill(piece.next_part.begin(), piece.next_part.end(), piece.last_bag - piece.first_bag);
  }
}

void RouteBags::write(std::int64_t* buffer, const std::vector<std::int64_t*>& targets,
                      std::int64_t* sources) {
  // Where blocks begin: in the buffer, among all ids, and among the parts of a table.
  std::vector<std::int64_t> in_buffer(counts_.size()), in_ids(counts_.size(), 0),
      in_parts(counts_.size(), 0), parts_before(tables_.size(), 0);
  std::int64_t at = 0, ids = 0;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      const std::size_t block = ids_block(r, t);
      in_buffer[block] = at;
      in_ids[block] = ids;
      at += counts_[block];
      ids += counts_[block];
    }
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      const std::size_t block = parts_block(r, t);
      in_buffer[block] = at;
      in_parts[block] = parts_before[t];
      at += counts_[block];
      parts_before[t] += counts_[block];
    }
  }
  each_piece([&](Piece& piece) {
    const RouteBagsFeature& feature = features_[piece.feature];
    const RouteBagsTable& table = tables_[feature.table];
    std::vector<std::int64_t> length(ranks_);
    for (std::int64_t bag = piece.first_bag; bag < piece.last_bag; ++bag) {
      std::fill(length.begin(), length.end(), 0);
      for (std::int64_t i = feature.bags.begin(bag); i < feature.bags.end(bag); ++i) {
        Key key = feature.bags.ids[i];
        if (!table.range.target(&key)) continue;
        const std::uint32_t rank = table.placement.rank_of(key);
        const std::size_t block = ids_block(rank, feature.table);
        const std::int64_t place = piece.next_id[rank]++;
        buffer[in_buffer[block] + place] = table.placement.local_id(key);
        if (sources != nullptr) sources[in_ids[block] + place] = first_id_[piece.feature] + i;
        ++length[rank];
      }
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        if (length[rank] == 0 && !keep_empty_) continue;
        const std::size_t block = parts_block(rank, feature.table);
        const std::int64_t place = piece.next_part[rank]++;
        buffer[in_buffer[block] + place] = length[rank];
        targets[feature.table][in_parts[block] + place] = first_bag_[piece.feature] + bag;
      }
    }
  });
}

bool RouteBags::refused(std::size_t* feature, std::int64_t* position) const {
  for (std::size_t f = 0; f < features_.size(); ++f) {
    const IdRange& range = tables_[features_[f].table].range;
    if (range.rows < 0 || range.policy != OutOfRange::kError) continue;
    const Bags& bags = features_[f].bags;
    for (std::int64_t i = 0; i < bags.ids_count(); ++i) {
      if (range.contains(bags.ids[i])) continue;
      *feature = f;
      *position = i;
      return true;
    }
  }
  return false;
}

void RouteBags::each_piece(const std::function<void(Piece&)>& body) {
  executor_.parallel_for(static_cast<std::int64_t>(pieces_.size()), 8 * kIdsAPiece,
                         [&](std::int64_t begin, std::int64_t end) {
                           for (std::int64_t p = begin; p < end; ++p) body(pieces_[p]);
                         });
}

}  // namespace sok::cpu
