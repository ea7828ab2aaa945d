// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/ops/shapes.h"

REGISTER_OP("Sok>Lookup")
    .Input("tables: num_tables * resource")
    .Input("ids: num_features * int64")
    .Input("row_splits: num_features * int64")
    .Input("weights: num_features * float")
    .Output("outputs: output_types")
    .SOK_FEATURE_ATTRS.Attr("output_types: list({float, half, bfloat16}) >= 1")
    .Attr("training: bool")
    .SetIsStateful()
    .SetShapeFn(sok::lookup_shape)
    .Doc(
        "Finds, reads and combines the rows of all features of one call.\n\n"
        "outputs: one [batch, dimension] tensor a feature.\n"
        "training: whether unknown ids are inserted. Without, no table changes and unknown ids\n"
        "  read the table's default row.\n" SOK_FEATURE_DOC);

REGISTER_OP("Sok>WeightGradients")
    .Input("tables: num_tables * resource")
    .Input("ids: num_features * int64")
    .Input("row_splits: num_features * int64")
    .Input("weights: num_features * float")
    .Input("gradients: num_features * float")
    .Output("weight_gradients: num_features * float")
    .SOK_FEATURE_ATTRS.SetIsStateful()
    .SetShapeFn([](sok::InferenceContext* c) {
      std::vector<sok::ShapeHandle> weights;
      TF_RETURN_IF_ERROR(c->input("weights", &weights));
      for (std::size_t f = 0; f < weights.size(); ++f) {
        c->set_output(static_cast<int>(f), weights[f]);
      }
      return absl::OkStatus();
    })
    .Doc(
        "Gradients of a lookup with respect to the weights of its ids.\n\n"
        "gradients: of the outputs, [batch, dimension] a feature.\n"
        "weight_gradients: shaped as the weights; zeros for a feature that has "
        "none.\n" SOK_FEATURE_DOC);
