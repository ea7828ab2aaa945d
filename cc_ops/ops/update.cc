// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/ops/shapes.h"

REGISTER_OP("Sok>Update")
    .Input("tables: num_tables * resource")
    .Input("keys: num_tables * int64")
    .Input("gradients: num_tables * float")
    .Input("hyper: num_tables * float")
    .Input("iterations: int64")
    .Input("scale: float")
    .Input("apply: bool")
    .Attr("num_tables: int >= 1")
    .Attr("optimizers: list(string)")
    .Attr("reaches: list({'local', 'global', 'lazy_global'})")
    .Attr("unique: list(bool)")
    .Attr("initials: list(float)")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Applies an optimizer to the rows of keys. A key without a row gets one: its initial
value, then the update. Gradients of equal keys are summed before one update.

keys: for each table, [n].
gradients: for each table, [n, dimension].
hyper: for each table the optimizer's hyper-parameters in the order of its description.
iterations: the number of steps before this one.
scale: multiplied with every gradient.
apply: false leaves every table as it is.
optimizers: for each table the name of its optimizer.
reaches: for each table, whether rows outside the batch get a zero gradient, at once
  ('global') or when they are next read ('lazy_global'), or are left alone ('local').
unique: for each table, whether its keys are known to be different; of equal ones only one
  gradient would count.
initials: for each table, what the states start with that start at a hyper-parameter
  (an accumulator); others start at 0.
)doc");

REGISTER_OP("Sok>MergeUpdate")
    .Input("tables: num_tables * resource")
    .Input("ids: num_features * int64")
    .Input("row_splits: num_features * int64")
    .Input("weights: num_features * float")
    .Input("gradients: output_types")
    .Input("hyper: num_tables * float")
    .Input("iterations: int64")
    .Input("scale: float")
    .Input("apply: bool")
    .SOK_FEATURE_ATTRS.Attr("output_types: list({float, half, bfloat16}) >= 1")
    .Attr("optimizers: list(string)")
    .Attr("initials: list(float)")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(
        "Sok>Merge and Sok>Update (local) in one: the gradients of rows are never stored.\n\n"
        "gradients: of the lookup's outputs, [batch, dimension] a feature.\n"
        "hyper, iterations, scale, apply, optimizers, initials: as for "
        "Sok>Update.\n" SOK_FEATURE_DOC);
