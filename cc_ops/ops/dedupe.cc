// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/ops/shapes.h"

REGISTER_OP("Sok>Dedupe")
    .Input("ids: num_features * int64")
    .Output("keys: num_tables * int64")
    .Output("slots: num_features * int64")
    .Output("refused: int64")
    .Attr("num_tables: int >= 1")
    .Attr("num_features: int >= 1")
    .Attr("table_of: list(int)")
    .Attr("rows: list(int)")
    .Attr("out_of_range: list({'error', 'zero', 'clip'})")
    .SetShapeFn([](sok::InferenceContext* c) {
      std::vector<std::int64_t> rows;
      TF_RETURN_IF_ERROR(c->GetAttr("rows", &rows));
      std::vector<sok::ShapeHandle> ids;
      TF_RETURN_IF_ERROR(c->input("ids", &ids));
      int output = 0;
      for (std::size_t t = 0; t < rows.size(); ++t)
        c->set_output(output++, c->Vector(c->UnknownDim()));
      for (const sok::ShapeHandle& shape : ids) c->set_output(output++, shape);
      c->set_output(output, c->Vector(4));
      return absl::OkStatus();
    })
    .Doc(R"doc(
The different ids of each table.

ids: one tensor a feature, of any shape.
keys: for each table, its different ids.
slots: shaped as the ids: for each the position of its key; -1 for one that has no row.
refused: table, feature, position and id of the first id out of range of a static table whose
  policy is 'error'; all -1 if there is none.
table_of: for each feature the position of its table.
rows: for each table how many rows it has on all ranks together; -1 for a hash table.
out_of_range: for each table what happens to an id outside [0, rows).
)doc");
