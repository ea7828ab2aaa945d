// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/ops/shapes.h"

REGISTER_OP("Sok>Merge")
    .Input("tables: num_tables * resource")
    .Input("ids: num_features * int64")
    .Input("row_splits: num_features * int64")
    .Input("weights: num_features * float")
    .Input("gradients: output_types")
    .Output("keys: num_tables * int64")
    .Output("key_gradients: num_tables * float")
    .SOK_FEATURE_ATTRS
    .Attr("output_types: list({float, half, bfloat16}) >= 1")
    // Not stateful: it changes nothing, so that a function whose update does the merging itself
    // (Sok>MergeUpdate) drops it.
    .SetShapeFn([](sok::InferenceContext* c) {
      std::vector<std::int32_t> dimensions;
      TF_RETURN_IF_ERROR(c->GetAttr("dimensions", &dimensions));
      const int tables = static_cast<int>(dimensions.size());
      for (int t = 0; t < tables; ++t) {
        const auto count = c->UnknownDim();
        c->set_output(t, c->Vector(count));
        c->set_output(tables + t, c->Matrix(count, dimensions[t]));
      }
      return absl::OkStatus();
    })
    .Doc(
        "From gradients of a lookup's outputs to one summed gradient for each different key.\n\n"
        "gradients: of the outputs, [batch, dimension] a feature.\n"
        "keys: for each table its different ids in the batch.\n"
        "key_gradients: [keys, dimension], summed over bags and features.\n" SOK_FEATURE_DOC);
