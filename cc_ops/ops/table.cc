// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/ops/shapes.h"

using sok::InferenceContext;

REGISTER_OP("Sok>Table")
    .Output("table: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Attr("name_of_table: string = ''")
    .Attr("row_type: {float, half, bfloat16} = DT_FLOAT")
    .Attr("dimension: int")
    .Attr("rows: int = -1")
    .Attr("id_offset: int = 0")
    .Attr("id_stride: int >= 1 = 1")
    .Attr("capacity: int = 0")
    .Attr("max_capacity: int = 0")
    .Attr("device_bytes: int >= -1 = -1")
    .Attr("initializer: {'constant', 'uniform', 'normal', 'truncated_normal'} = 'constant'")
    .Attr("initializer_a: float = 0")
    .Attr("initializer_b: float = 0")
    .Attr("seed: int = 0")
    .Attr("default_row: {'initial', 'zeros', 'vector'} = 'initial'")
    .Attr("default_vector: list(float) = []")
    .Attr("out_of_range: {'error', 'zero', 'clip'} = 'error'")
    .Attr("collide: bool = false")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Creates a table, or finds the one that has this shared_name.

name_of_table: the name in error messages.
rows: how many rows a static table has; -1 for a hash table.
id_offset, id_stride: row r of a static table starts with the values of id
  r * id_stride + id_offset.
capacity: rows to make room for at once.
max_capacity: a hash table refuses to hold more rows than this; 0: it grows.
device_bytes: of rows and states in a GPU's memory; the rest is in pinned host memory; -1: all are in
  the GPU's.
initializer_a: the constant, the lower bound, or the mean.
initializer_b: the upper bound or the standard deviation.
default_row: what a lookup without insertion gives for an unknown id.
out_of_range: what a static table does with an id outside [0, rows).
collide: for tests: every key hashes to 0.
)doc");

REGISTER_OP("Sok>TableSize")
    .Input("table: resource")
    .Output("size: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("The number of rows that a table holds.");

REGISTER_OP("Sok>TableStats")
    .Input("table: resource")
    .Output("names: string")
    .Output("values: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      const auto count = c->UnknownDim();
      c->set_output(0, c->Vector(count));
      c->set_output(1, c->Vector(count));
      return absl::OkStatus();
    })
    .Doc("Counters of a table: names and values.");

REGISTER_OP("Sok>TablePlanes")
    .Input("table: resource")
    .Output("names: string")
    .Output("widths: int64")
    .Output("initials: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      const auto count = c->UnknownDim();
      for (int i = 0; i < 3; ++i) c->set_output(i, c->Vector(count));
      return absl::OkStatus();
    })
    .Doc("The planes of a table: 'values', then its optimizer states.");

REGISTER_OP("Sok>TableExport")
    .Input("table: resource")
    .Output("keys: int64")
    .Output("values: num_planes * float")
    .Attr("num_planes: int >= 0")
    .Attr("planes: list(string)")
    .Attr("widths: list(int)")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      std::vector<std::int32_t> widths;
      TF_RETURN_IF_ERROR(c->GetAttr("widths", &widths));
      const auto count = c->UnknownDim();
      c->set_output(0, c->Vector(count));
      for (std::size_t i = 0; i < widths.size(); ++i) {
        c->set_output(static_cast<int>(i + 1), c->Matrix(count, widths[i]));
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
All keys of a table with their rows in some of its planes, all of one moment.

values: for each plane, [keys, width], as float32 (which holds 16-bit rows exactly).
planes: names of planes that the table has.
)doc");

REGISTER_OP("Sok>TableImport")
    .Input("table: resource")
    .Input("keys: int64")
    .Input("values: num_planes * float")
    .Attr("num_planes: int >= 0")
    .Attr("planes: list(string)")
    .Attr("initials: list(float)")
    .Attr("replace: bool")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Writes rows: a key that is there is overwritten, one that is not is inserted. Planes that
are not given keep their value, or start at their initial value for a new key.

If it fails, nothing has changed, whatever ran out; but a GPU that has no memory left for the table's own
few bytes, or fails itself, may have forgotten rows under `replace`.

values: for each plane, [keys, width].
planes: names of planes; one that the table does not have is added.
initials: for each plane, what rows outside `keys` start with if the plane is added.
replace: forget all other keys first.
)doc");

REGISTER_OP("Sok>TableReserveKeys")
    .Input("table: resource")
    .Input("keys: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Refuses keys that TableImport would refuse, and makes room for those that are not there, so that they
can be imported piece by piece.
)doc");

REGISTER_OP("Sok>TableDetach")
    .Input("table: resource")
    .Attr("first: int >= 1")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc("Takes back the planes from this number on: those that a failed load has added.");

REGISTER_OP("Sok>TableErase")
    .Input("table: resource")
    .Input("keys: int64")
    .Output("erased: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Forgets keys, with all their states. erased: how many of them were there.");

REGISTER_OP("Sok>TableSeed")
    .Input("table: resource")
    .Output("seed: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("The seed of a table's initial values.");

REGISTER_OP("Sok>TableSetSeed")
    .Input("table: resource")
    .Input("seed: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc("Changes the seed of the initial values of rows that are inserted later.");

REGISTER_OP("Sok>TableSnapshot")
    .Input("table: resource")
    .Output("snapshot: resource")
    .Output("rows: int64")
    .Attr("planes: list(string)")
    .Attr("part: int >= 0 = 0")
    .Attr("parts: int >= 1 = 1")
    .Attr("beside_training: bool")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Scalar());
      c->set_output(1, c->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
The table as it is now, to be read piece by piece with TableSnapshotRead. It lives as long as
its handle.

rows: how many there are to be read.
planes: names of planes that the table has.
part, parts: of a static table, only this one of so many equal parts.
beside_training: whether the table may change while the snapshot is read. A GPU then copies these
  planes at once; in host memory changes are always allowed, and cost a copy of each row
  that changes.
)doc");

REGISTER_OP("Sok>TableSnapshotRead")
    .Input("table: resource")
    .Input("snapshot: resource")
    .Input("limit: int64")
    .Output("keys: int64")
    .Output("values: num_planes * float")
    .Attr("num_planes: int >= 0")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      const auto count = c->UnknownDim();
      c->set_output(0, c->Vector(count));
      for (int i = 1; i < c->num_outputs(); ++i)
        c->set_output(i, c->Matrix(count, c->UnknownDim()));
      return absl::OkStatus();
    })
    .Doc(R"doc(
The next rows of a snapshot of this table; no rows: all have been read.

limit: so many (at least one), or what is left.
values: for each of the snapshot's planes, [keys, width], as float32.
)doc");

REGISTER_OP("Sok>TableSnapshotBytes")
    .Input("snapshot: resource")
    .Output("bytes: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Memory that a snapshot holds beside its table.");

REGISTER_OP("Sok>TableReserve")
    .Input("table: resource")
    .Input("rows: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc("Makes room for so many rows in all, or says what does not fit.");
