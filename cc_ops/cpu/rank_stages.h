// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The stages that exist on several ranks only, on a CPU. Each has a .cc file of its name.
//
// Buffers that travel are ordered by (rank, table): first everything of all tables for rank 0, then
// for rank 1. `counts` is the matrix [ranks, tables] of rows in each such block. A table's rows
// taken out of such a buffer keep the order of the ranks.
#ifndef SOK_CPU_RANK_STAGES_H_
#define SOK_CPU_RANK_STAGES_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "cc_ops/core/batch.h"
#include "cc_ops/core/dedupe.h"
#include "cc_ops/core/route.h"
#include "cc_ops/core/types.h"
#include "cc_ops/cpu/executor.h"

namespace sok::cpu {

// dedupe.cc
// ----------------------------------------------------------------------------------------

struct DedupeFeature {
  const Key* ids = nullptr;
  std::int64_t count = 0;
  std::int64_t* slots = nullptr;  // out: for each id the position of its key, -1 if it has no row
};

// The different keys of the features that read one table.
class Dedupe {
 public:
  Dedupe(Executor& executor, IdRange range, std::vector<DedupeFeature> features);

  std::int64_t count() const { return first_.back(); }
  // Writes the keys [count] and completes the slots.
  void write(Key* keys) const;
  // The first id that the policy "error" refuses, if there is one.
  bool refused(std::size_t* feature, std::int64_t* position) const;

 private:
  void number_keys(std::uint32_t part, std::int64_t ids);

  Executor& executor_;
  IdRange range_;
  std::vector<DedupeFeature> features_;
  std::vector<std::vector<Key>> keys_;  // of each part
  std::vector<std::int64_t> first_;     // position of each part's first key
};

// route.cc
// -----------------------------------------------------------------------------------------

struct RouteTable {
  Placement placement;
  const Key* keys = nullptr;
  std::int64_t count = 0;
};

// Groups the different keys of all tables by the rank that owns them.
class Route {
 public:
  Route(Executor& executor, std::uint32_t ranks, std::vector<RouteTable> tables);

  std::int64_t total() const { return total_; }
  const std::vector<std::int64_t>& counts() const { return counts_; }  // [ranks, tables]
  // ids: [total], as their owners know them. positions[t][i]: of key i among its table's ids in the
  // order in which they travel, rank by rank. Once only.
  void write(Key* ids, const std::vector<std::int64_t*>& positions);

 private:
  struct Piece {
    std::size_t table;
    std::int64_t begin, end;
    std::vector<std::int64_t> next;  // for each rank
  };

  void each_piece(std::int64_t cost, const std::function<void(Piece&)>& body);

  Executor& executor_;
  std::uint32_t ranks_;
  std::vector<RouteTable> tables_;
  std::vector<Piece> pieces_;
  std::vector<std::int64_t> counts_;
  std::int64_t total_ = 0;
};

// route_bags.cc
// ------------------------------------------------------------------------------------

struct RouteBagsTable {
  Placement placement;
  IdRange range;
};

struct RouteBagsFeature {
  std::size_t table = 0;
  Bags bags;
};

// Cuts every bag into parts, one for each rank that owns some of its ids, so that owners can
// combine: ids are not deduplicated. The buffer holds for each rank first the ids of each table,
// then for each table the lengths of its parts: `counts` is the matrix [ranks, 2 * tables].
class RouteBags {
 public:
  // keep_empty: every bag has a part on every rank.
  RouteBags(Executor& executor, std::uint32_t ranks, bool keep_empty,
            std::vector<RouteBagsTable> tables, std::vector<RouteBagsFeature> features);

  const std::vector<std::int64_t>& counts() const { return counts_; }
  std::int64_t ids() const;
  std::int64_t parts(std::size_t table) const;
  // buffer: [sum of counts]. targets[t][p]: the bag, among those of all features of table t, that
  // part p belongs to, in the order in which parts travel. sources [ids], or null: for each id its
  // place among the ids of all features. Once only.
  void write(std::int64_t* buffer, const std::vector<std::int64_t*>& targets,
             std::int64_t* sources);
  // The first id that the policy "error" refuses, if there is one.
  bool refused(std::size_t* feature, std::int64_t* position) const;

 private:
  struct Piece {
    std::size_t feature;
    std::int64_t first_bag, last_bag;
    std::vector<std::int64_t> next_id, next_part;  // for each rank
  };

  std::size_t ids_block(std::uint32_t rank, std::size_t table) const {
    return rank * 2 * tables_.size() + table;
  }
  std::size_t parts_block(std::uint32_t rank, std::size_t table) const {
    return ids_block(rank, table) + tables_.size();
  }
  void count(Piece& piece) const;
  void each_piece(const std::function<void(Piece&)>& body);

  Executor& executor_;
  std::uint32_t ranks_;
  bool keep_empty_;
  std::vector<RouteBagsTable> tables_;
  std::vector<RouteBagsFeature> features_;
  std::vector<std::int64_t> first_bag_, first_id_;  // of each feature
  std::vector<Piece> pieces_;
  std::vector<std::int64_t> counts_;
};

// exchange.cc
// --------------------------------------------------------------------------------------

// A table's part of a buffer that travels: rows of `row_bytes`, in the order of the ranks.
struct ExchangePart {
  char* rows = nullptr;
  std::int64_t row_bytes = 0;
};

// Copies between one buffer in (rank, table) order and the tables' parts.
void interleave(Executor& executor, const std::vector<ExchangePart>& parts,
                const std::int64_t* counts, std::int64_t ranks, char* buffer);
void deinterleave(Executor& executor, const char* buffer, const std::int64_t* counts,
                  std::int64_t ranks, const std::vector<ExchangePart>& parts);

// combine.cc
// ---------------------------------------------------------------------------------------

struct CombineFeature {
  Columns rows;  // [row_count, width]: the rows of the table's different keys
  std::int64_t row_count = 0;
  std::int64_t width = 0;
  Bags bags;       // whose ids are positions in `rows`; -1 reads zeros
  Columns output;  // [bags, width], or its gradient
};

// Combines the bags of every feature.
void combine(Executor& executor, const std::vector<CombineFeature>& features);

// Sums the output gradients of features that read one table: gradients [row_count, width], each
// row added up in the order of the batch.
void combine_row_gradients(Executor& executor, const std::vector<CombineFeature>& features,
                           std::int64_t row_count, std::int64_t width, float* gradients);

// The gradient of each id's weight, for output gradients in float.
void combine_weight_gradients(Executor& executor, const CombineFeature& feature, float* gradients);

}  // namespace sok::cpu

#endif  // SOK_CPU_RANK_STAGES_H_
