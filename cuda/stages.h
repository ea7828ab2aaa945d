// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The stages of one rank on a GPU; the contracts are those of cc_ops/cpu/stages.h. All pointers are
// to device memory. Each stage has a .cu file of its name.
#ifndef SOK_CUDA_STAGES_H_
#define SOK_CUDA_STAGES_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "cc_ops/core/batch.h"
#include "cc_ops/core/interaction.h"
#include "cc_ops/core/optimizer_spec.h"
#include "cc_ops/core/status.h"
#include "cuda/context.h"
#include "cuda/table.h"

namespace sok::cuda {

// lookup.cu, weight_gradients.cu
// ----------------------------------------------------------------------------------------

struct LookupFeature {
  Table* table = nullptr;
  Bags bags;
  Columns output;  // aligned to 16 bytes
  float max_norm = 0;
};

// One kernel for all tables; with `insert` one before it, which gives every id its row.
Status lookup(Context& context, const std::vector<LookupFeature>& features, bool insert);

Status weight_gradients(Context& context, const LookupFeature& feature,
                        const float* output_gradient, float* gradients);

// resolve.cu
// ---------------------------------------------------------------------------------------

// Rows of ids; with `insert`, new ids get one, with its initial values. `rows` need not be given.
Status resolve(Context& context, Table* table, const Key* ids, std::int64_t count, bool insert,
               Row* rows);

// Room for all new ids, exactly counted where a bounded table needs that.
struct IdSpan {
  const Key* ids = nullptr;
  std::int64_t count = 0;
};
Status reserve(Context& context, Table* table, const std::vector<IdSpan>& spans);

// merge.cu
// -----------------------------------------------------------------------------------------

struct MergeFeature {
  Bags bags;
  Columns gradient;
};

// Gradients of bags to one summed gradient a different key. `allocate` is called once, with the
// number of keys, after the stage's one synchronisation.
Status merge(
    Context& context, Table* table, const std::vector<MergeFeature>& features,
    const std::function<Status(std::int64_t count, Key** keys, float** gradients)>& allocate);

Status max_norm_gradients(Context& context, Table* table, const Key* keys, std::int64_t count,
                          float max_norm, float* gradients);

// update.cu
// ----------------------------------------------------------------------------------------

struct TableUpdate {
  Table* table = nullptr;
  const OptimizerSpec* optimizer = nullptr;
  const float* hyper = nullptr;  // on the device
  std::vector<float> initials;   // of its states
  Reach reach = Reach::kLocal;
  const Key* keys = nullptr;
  const float* gradients = nullptr;
  std::int64_t count = 0;
  bool unique = false;
};

// The step's scalars, on the device.
struct StepScalars {
  const std::int64_t* iterations = nullptr;  // steps before this one
  const float* scale = nullptr;
  const bool* apply = nullptr;
};

Status update(Context& context, std::vector<TableUpdate>& updates, const StepScalars& scalars);

// merge_update.cu
// ----------------------------------------------------------------------------------

// `update` says which table and optimizer; its keys and gradients are those of the features.
struct MergeUpdate {
  TableUpdate update;
  std::vector<MergeFeature> features;
};

// The local update of all tables from the gradients of bags, without a synchronisation and without
// storing the gradients of rows.
Status merge_update(Context& context, const std::vector<MergeUpdate>& updates,
                    const StepScalars& scalars);

// hyper_parameters.cu
// ------------------------------------------------------------------------------

Status hyper_parameters(Context& context, const HyperParameters& parameters, float* out);

// finite.cu
// ----------------------------------------------------------------------------------------

// These set `*finite`, in device memory.
Status all_finite(Context& context, const std::vector<Values>& values, bool* finite);
Status bags_finite(Context& context, const std::vector<BagGradients>& gradients, bool* finite);

// interaction.cu: see core/interaction.h
// --------------------------------------------------------------------------------

Status dot_interaction(Context& context, const Interaction& call, void* products);
// `gradient` is the result's, `gradients` are the vectors'.
Status dot_interaction_gradients(Context& context, const Interaction& call, const void* gradient,
                                 const std::vector<void*>& gradients);

// Plain memory traffic on the op's stream; copies to the host synchronise.
Status copy(Context& context, void* to, const void* from, std::size_t bytes);
Status copy_to_host(Context& context, void* to, const void* from, std::size_t bytes);
Status synchronise(Context& context);

// rows.cu
// ------------------------------------------------------------------------------------------

Status read_plane(Context& context, const Table& table, int plane, const Row* rows,
                  std::int64_t count, float* out);
Status write_plane(Context& context, const Table& table, int plane, const Row* rows,
                   std::int64_t count, const float* values);

}  // namespace sok::cuda

#endif  // SOK_CUDA_STAGES_H_
