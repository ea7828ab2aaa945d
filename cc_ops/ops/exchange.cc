// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/ops/shapes.h"

REGISTER_OP("Sok>ReceiveCounts")
    .Input("message: int64")
    .Input("sizes: int64")
    .Output("counts: int64")
    .Attr("columns: int >= 0")
    .Attr("tables: list(string)")
    .Attr("rows: list(int)")
    .Attr("here: int >= 0")
    .Attr("lookup: string")
    .SetShapeFn([](sok::InferenceContext* c) {
      std::int64_t columns = 0;
      TF_RETURN_IF_ERROR(c->GetAttr("columns", &columns));
      sok::ShapeHandle message, sizes;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &message));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &sizes));
      c->set_output(0, c->Matrix(c->Dim(sizes, 0), columns));
      return absl::OkStatus();
    })
    .Doc(R"doc(
What ranks tell each other before anything else of a lookup travels. Fails, on every rank alike, if one
of them met an id that is out of range, or makes another lookup.

message: of each rank `refused` of Sok>Dedupe or Sok>RouteBags, a number that stands for its lookup,
  and its counts.
sizes: how many of these numbers each rank sent.
counts: [ranks, columns].
tables: names.
rows: for each table how many rows it has on all ranks together.
here: this rank. lookup: what it looks up, for the error.
)doc");

REGISTER_OP("Sok>Interleave")
    .Input("parts: types")
    .Input("counts: int64")
    .Output("buffer: carrier")
    .Output("splits: int64")
    .Attr("types: list({int64, float, half, bfloat16}) >= 1")
    .Attr("widths: list(int)")
    .Attr("carrier: {int64, float, half}")
    .SetShapeFn([](sok::InferenceContext* c) {
      sok::ShapeHandle counts;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(c->num_inputs() - 1), 2, &counts));
      c->set_output(0, c->Vector(c->UnknownDim()));
      c->set_output(1, c->Vector(c->Dim(counts, 0)));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Rows of several tables as one buffer that travels: ordered by (rank, table).

parts: for each table [n, width], ordered by rank.
counts: [ranks, tables], rows in each block.
buffer: flat, in elements of `carrier`, which hold the bits of the rows.
splits: [ranks], elements of the buffer that belong to each rank.
)doc");

REGISTER_OP("Sok>Deinterleave")
    .Input("buffer: carrier")
    .Input("counts: int64")
    .Output("parts: types")
    .Attr("types: list({int64, float, half, bfloat16}) >= 1")
    .Attr("widths: list(int)")
    .Attr("carrier: {int64, float, half}")
    .SetShapeFn([](sok::InferenceContext* c) {
      std::vector<std::int64_t> widths;
      TF_RETURN_IF_ERROR(c->GetAttr("widths", &widths));
      for (std::size_t t = 0; t < widths.size(); ++t) {
        c->set_output(static_cast<int>(t), c->Matrix(c->UnknownDim(), widths[t]));
      }
      return absl::OkStatus();
    })
    .Doc("The inverse of Sok>Interleave.");
