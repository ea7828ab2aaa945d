// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "cc_ops/cpu/rank_stages.h"

namespace sok::cpu {
namespace {

constexpr std::int64_t kKeysAPiece = 16384;

}  // namespace

Route::Route(Executor& executor, std::uint32_t ranks, std::vector<RouteTable> tables)
    : executor_(executor), ranks_(ranks), tables_(std::move(tables)) {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    for (std::int64_t begin = 0; begin < tables_[t].count; begin += kKeysAPiece) {
      pieces_.push_back({t, begin, std::min(begin + kKeysAPiece, tables_[t].count), {}});
    }
    total_ += tables_[t].count;
  }
  each_piece(5, [this](Piece& piece) {
    piece.next.assign(ranks_, 0);
    const RouteTable& table = tables_[piece.table];
    for (std::int64_t i = piece.begin; i < piece.end; ++i) {
      ++piece.next[table.placement.rank_of(table.keys[i])];
    }
  });
  // From counts to where each piece writes within its table's part for each rank.
  counts_.assign(ranks_ * tables_.size(), 0);
  for (Piece& piece : pieces_) {
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      std::int64_t& count = counts_[r * tables_.size() + piece.table];
      const std::int64_t here = piece.next[r];
      piece.next[r] = count;
      count += here;
    }
  }
}

void Route::write(Key* ids, const std::vector<std::int64_t*>& positions) {
  // Where a rank's part of a table begins: in the buffer, and among all keys of the table.
  std::vector<std::int64_t> in_buffer(counts_.size()), in_table(counts_.size());
  std::int64_t at = 0;
  std::vector<std::int64_t> sent(tables_.size(), 0);
  for (std::size_t block = 0; block < counts_.size(); ++block) {
    in_buffer[block] = at;
    at += counts_[block];
    in_table[block] = sent[block % tables_.size()];
    sent[block % tables_.size()] += counts_[block];
  }
  each_piece(8, [&](Piece& piece) {
    const RouteTable& table = tables_[piece.table];
    for (std::int64_t i = piece.begin; i < piece.end; ++i) {
      const Key key = table.keys[i];
      const std::uint32_t rank = table.placement.rank_of(key);
      const std::size_t block = rank * tables_.size() + piece.table;
      const std::int64_t place = piece.next[rank]++;
      ids[in_buffer[block] + place] = table.placement.local_id(key);
      positions[piece.table][i] = in_table[block] + place;
    }
  });
}

void Route::each_piece(std::int64_t cost, const std::function<void(Piece&)>& body) {
  executor_.parallel_for(static_cast<std::int64_t>(pieces_.size()), cost * kKeysAPiece,
                         [&](std::int64_t begin, std::int64_t end) {
                           for (std::int64_t p = begin; p < end; ++p) body(pieces_[p]);
                         });
}

}  // namespace sok::cpu
