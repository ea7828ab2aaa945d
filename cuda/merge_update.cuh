// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of the merge that updates at once share.
#ifndef SOK_CUDA_MERGE_UPDATE_CUH_
#define SOK_CUDA_MERGE_UPDATE_CUH_

#include <tuple>

#include "cuda/features.cuh"
#include "cuda/tuning.h"
#include "cuda/update_rows.cuh"

namespace sok::cuda {

// The rank of an id whose row no other id of the batch has.
constexpr std::uint32_t kSingle = 0xffffffffu;

// A row that several ids of the batch have.
struct Segment {
  Row row;
  std::uint32_t table;
  std::uint32_t place;  // of its first contribution
  std::uint32_t count;
  // Of a segment of more than tuning::kAlone, which is cut into pieces:
  std::uint32_t first_piece;
  std::uint32_t summed;  // how many pieces have been summed

  __device__ bool is_cut() const { return count > tuning::kAlone; }
  __device__ std::uint32_t pieces() const { return (count - 1) / tuning::kPiece + 1; }
};

struct Piece {
  std::uint32_t place;
  std::uint32_t count;
  std::uint32_t segment;
};

// Segments in the high half, ids placed in the low one: one atomic operation counts both.
struct Counters {
  unsigned long long segments_and_ids, pieces;

  __device__ std::int64_t segments() const {
    return static_cast<std::int64_t>(segments_and_ids >> 32);
  }
};

struct Scratch {
  Counters* counters;
  Row* rows;             // by id
  std::uint32_t* ranks;  // by id: among the ids of its row, or kSingle
  Segment* segments;
  const void** sources;  // by place: a bag's gradient
  float* coefficients;   // by place; null: all are 1
  Piece* pieces;
  float* partials;  // by piece, [width of the widest table]
  std::int64_t partial_width;
  RowType gradient_type;
};

// The tables of one launch.
template <typename Where>
struct Tables {
  StepScalars scalars;
  typename Where::template List<UpdateArgs> list;

  __device__ __forceinline__ const UpdateArgs& operator[](int table) const {
    return list.items[table];
  }
};

// What decides about the kernels: optimizer, type of rows, of gradients, vectors of 4, lanes a
// tile.
using Kind = std::tuple<OptimizerId, RowType, RowType, bool, int>;

// apply.cu: places the contributions to segments and updates the other rows, then sums the segments
// and updates theirs.
// The tables lie where the features do.
Status apply(Context& context, const Kind& kind, const Features& features,
             const Descriptors<UpdateArgs>& tables, const StepScalars& scalars,
             const Scratch& scratch, std::int64_t ids);

}  // namespace sok::cuda

#endif  // SOK_CUDA_MERGE_UPDATE_CUH_
