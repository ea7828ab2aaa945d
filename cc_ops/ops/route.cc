// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/ops/shapes.h"

REGISTER_OP("Sok>Route")
    .Input("keys: num_tables * int64")
    .Input("slots: num_features * int64")
    .Output("ids: int64")
    .Output("counts: int64")
    .Output("routed_slots: num_features * int64")
    .Attr("num_tables: int >= 1")
    .Attr("num_features: int >= 0")
    .Attr("table_of: list(int)")
    .Attr("ranks: int >= 1")
    .Attr("owners: list(int)")
    .Attr("rows: list(int)")
    .SetShapeFn([](sok::InferenceContext* c) {
      std::int64_t ranks = 0, tables = 0;
      TF_RETURN_IF_ERROR(c->GetAttr("ranks", &ranks));
      TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &tables));
      c->set_output(0, c->Vector(c->UnknownDim()));
      c->set_output(1, c->Matrix(ranks, tables));
      std::vector<sok::ShapeHandle> slots;
      TF_RETURN_IF_ERROR(c->input("slots", &slots));
      for (std::size_t f = 0; f < slots.size(); ++f)
        c->set_output(static_cast<int>(f + 2), slots[f]);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Groups the different keys of all tables by the rank that owns them.

keys, slots: of Sok>Dedupe.
ids: all keys as their owners know them, first those of all tables for rank 0, then for rank 1.
counts: [ranks, tables], how many ids go to each rank.
routed_slots: slots, with positions among the table's ids in the order in which they travel.
owners: for each table the rank that has all of its rows; -1 if they are distributed.
rows: for each table how many rows it has on all ranks together; -1 for a hash table.
)doc");

REGISTER_OP("Sok>RouteBags")
    .Input("ids: num_features * int64")
    .Input("row_splits: num_features * int64")
    .Input("weights: num_features * float")
    .Output("buffer: int64")
    .Output("counts: int64")
    .Output("refused: int64")
    .Output("sources: int64")
    .Output("targets: num_tables * int64")
    .SOK_FEATURE_ATTRS.Attr("ranks: int >= 1")
    .Attr("owners: list(int)")
    .Attr("rows: list(int)")
    .Attr("out_of_range: list({'error', 'zero', 'clip'})")
    .Attr("keep_empty: bool")
    .SetShapeFn([](sok::InferenceContext* c) {
      std::int64_t ranks = 0, tables = 0;
      TF_RETURN_IF_ERROR(c->GetAttr("ranks", &ranks));
      TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &tables));
      c->set_output(0, c->Vector(c->UnknownDim()));
      c->set_output(1, c->Matrix(ranks, 2 * tables));
      c->set_output(2, c->Vector(4));
      c->set_output(3, c->Vector(c->UnknownDim()));
      for (int t = 0; t < tables; ++t) c->set_output(4 + t, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    })
    .Doc(
        "Cuts every bag into parts, one for each rank that owns some of its ids.\n\n"
        "ids: one tensor a feature: [batch, hotness], or [n] flat ids if ragged.\n"
        "buffer: for each rank the ids of each table, as their owners know them, then for each "
        "table\n"
        "  how many of them each part has.\n"
        "counts: [ranks, 2 * tables], the lengths of these blocks.\n"
        "refused: as of Sok>Dedupe.\n"
        "sources: for each id its place among the ids of all features, in the order of travel; "
        "empty\n"
        "  if no feature is weighted.\n"
        "targets: for each table, for each part in the order of travel the bag it belongs to, "
        "counted\n"
        "  over all features of the table.\n"
        "owners, rows: as of Sok>Route. out_of_range: as of Sok>Dedupe.\n"
        "keep_empty: every bag has a part on every rank, also one without ids.\n" SOK_BAG_DOC);
