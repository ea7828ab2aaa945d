// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The stages of one rank on a CPU. Each has a .cc file of its name.
#ifndef SOK_CPU_STAGES_H_
#define SOK_CPU_STAGES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc_ops/core/batch.h"
#include "cc_ops/core/interaction.h"
#include "cc_ops/core/optimizer_spec.h"
#include "cc_ops/core/status.h"
#include "cc_ops/cpu/executor.h"
#include "cc_ops/cpu/merge.h"
#include "cc_ops/cpu/table.h"

namespace sok::cpu {

// lookup.cc
// ----------------------------------------------------------------------------------------

struct LookupFeature {
  Table* table = nullptr;
  Bags bags;
  Columns output;      // [bags, dimension]
  float max_norm = 0;  // > 0: longer rows are scaled down to this Euclidean length
};

// Find, read, combine and write for all features of a call. With `insert`, every new id has its row
// when this returns; without, no table changes and unknown ids read the table's default row.
//
// `memory` keeps the ids, row splits and weights where they are, as they are: hash tables then
// remember where they found the ids of a call with `insert`, and the update that follows need not
// find them again.
Status lookup(Executor& executor, const std::vector<LookupFeature>& features, bool insert,
              const std::shared_ptr<const void>& memory = nullptr);

// weights.cc
// ---------------------------------------------------------------------------------------

// The gradient of each id's weight: gradients[i], for gradients of the output in float.
Status weight_gradients(Executor& executor, const LookupFeature& feature,
                        const float* output_gradient, float* gradients);

// merge.cc: see merge.h
// ----------------------------------------------------------------------------

// What clipping rows to max_norm in the lookup does to their merged gradients.
Status max_norm_gradients(Executor& executor, Table& table, const Key* keys, std::int64_t count,
                          float max_norm, float* gradients);

// update.cc
// ----------------------------------------------------------------------------------------

struct TableUpdate {
  Table* table = nullptr;
  const OptimizerSpec* optimizer = nullptr;
  std::vector<float> hyper;
  Reach reach = Reach::kLocal;
  const Key* keys = nullptr;
  const float* gradients = nullptr;  // [count, dimension]
  std::int64_t count = 0;
  bool unique = false;  // the keys are known to be different
};

// Finds or inserts every key, then applies the optimizer to its row. Nothing changes on an error.
Status update(Executor& executor, std::vector<TableUpdate>& updates, std::int64_t step,
              float scale);

// merge_update.cc
// ----------------------------------------------------------------------------------

struct MergeUpdate {
  Table* table = nullptr;
  const OptimizerSpec* optimizer = nullptr;
  std::vector<float> hyper;
  std::vector<MergeFeature> features;
};

// Merge and update (local) in one: each key's gradients are summed where its row is updated, and
// nowhere stored. Nothing changes on an error.
Status merge_update(Executor& executor, std::vector<MergeUpdate>& updates, std::int64_t step,
                    float scale);

// rows.cc
// ------------------------------------------------------------------------------------------

// Copies one plane of the given rows to out [count, width], converted to float.
void read_plane(Executor& executor, const Table& table, int plane, const Row* rows,
                std::int64_t count, float* out);
// Writes it. Rows must exist.
void write_plane(Executor& executor, Table& table, int plane, const Row* rows, std::int64_t count,
                 const float* values);

// Rows of different keys, new ones inserted, after forgetting the others if `replace`; planes that
// are not there are added. On an error, running out of memory included, nothing changes.
Status import_rows(Executor& executor, Table& table, const Key* keys, std::int64_t count,
                   bool replace, const std::vector<PlaneValues>& values);

// finite.cc
// ----------------------------------------------------------------------------------------

bool all_finite(Executor& executor, const std::vector<Values>& values);
// Whether the gradients of rows that these would give are; see Sok>BagsFinite.
bool bags_finite(Executor& executor, const std::vector<BagGradients>& gradients);

// interaction.cc: see core/interaction.h
// --------------------------------------------------------------------------------

void dot_interaction(Executor& executor, const Interaction& call, void* products);
// `gradient` is the result's, `gradients` are the vectors'.
void dot_interaction_gradients(Executor& executor, const Interaction& call, const void* gradient,
                               const std::vector<void*>& gradients);

}  // namespace sok::cpu

#endif  // SOK_CPU_STAGES_H_
