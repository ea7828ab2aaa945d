// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/ops/shapes.h"

REGISTER_OP("Sok>AllFinite")
    .Input("tensors: types")
    .Output("finite: bool")
    .Attr("types: list({float, half, bfloat16}) >= 1")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Whether no element of any tensor is infinite or NaN.

finite: a scalar.
)doc");

REGISTER_OP("Sok>BagsFinite")
    .Input("ids: num_features * int64")
    .Input("row_splits: num_features * int64")
    .Input("weights: num_features * float")
    .Input("gradients: output_types")
    .Output("finite: bool")
    .SOK_FEATURE_ATTRS.Attr("output_types: list({float, half, bfloat16}) >= 1")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(
        "Whether the gradients of rows that Sok>Merge would give are all finite, without summing "
        "them.\n\n"
        "A gradient so large that a sum could overflow counts as infinite. That of a bag without "
        "ids, or whose\n"
        "weights have the sum 0 and so reach no row, does not count.\n\n"
        "gradients: of the lookup's outputs, [batch, dimension] a feature.\n"
        "finite: a scalar.\n" SOK_BAG_DOC);
