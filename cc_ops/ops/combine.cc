// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/ops/shapes.h"

REGISTER_OP("Sok>Combine")
    .Input("rows: row_types")
    .Input("ids: num_features * int64")
    .Input("row_splits: num_features * int64")
    .Input("weights: num_features * float")
    .Output("outputs: output_types")
    .SOK_FEATURE_ATTRS.Attr("row_types: list({float, half, bfloat16}) >= 1")
    .Attr("output_types: list({float, half, bfloat16}) >= 1")
    .SetShapeFn(sok::lookup_shape)
    .Doc(
        "Combines rows that have been fetched: one vector for each bag.\n\n"
        "rows: for each table [n, dimension], a row for each different id.\n"
        "ids: positions in the table's `rows`; -1 reads zeros. Else laid out as in Sok>Lookup.\n"
        "outputs: one [batch, dimension] tensor a feature.\n" SOK_BAG_DOC);

REGISTER_OP("Sok>CombineGradients")
    .Input("rows: row_types")
    .Input("ids: num_features * int64")
    .Input("row_splits: num_features * int64")
    .Input("weights: num_features * float")
    .Input("gradients: output_types")
    .Output("row_gradients: num_tables * float")
    .Output("weight_gradients: num_features * float")
    .SOK_FEATURE_ATTRS.Attr("row_types: list({float, half, bfloat16}) >= 1")
    .Attr("output_types: list({float, half, bfloat16}) >= 1")
    .SetShapeFn([](sok::InferenceContext* c) {
      std::vector<sok::ShapeHandle> rows, weights;
      TF_RETURN_IF_ERROR(c->input("rows", &rows));
      TF_RETURN_IF_ERROR(c->input("weights", &weights));
      int output = 0;
      for (const sok::ShapeHandle& shape : rows) c->set_output(output++, shape);
      for (const sok::ShapeHandle& shape : weights) c->set_output(output++, shape);
      return absl::OkStatus();
    })
    .Doc(
        "The gradients of Sok>Combine.\n\n"
        "rows, ids: as in Sok>Combine.\n"
        "gradients: of the outputs, [batch, dimension] a feature.\n"
        "row_gradients: shaped as the rows, each summed in the order of the batch.\n"
        "weight_gradients: shaped as the weights; zeros for a feature that has "
        "none.\n" SOK_BAG_DOC);
