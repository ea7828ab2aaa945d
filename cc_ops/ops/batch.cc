// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/ops/shapes.h"

REGISTER_OP("Sok>HoldBatch")
    .Input("tensors: types")
    .Output("batch: resource")
    .Attr("types: list(type) >= 1")
    .SetIsStateful()
    .SetShapeFn([](sok::InferenceContext* c) {
      c->set_output(0, c->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
A handle of tensors in the host's memory, which live as long as it. A handle stays where it is when
tf.data moves elements to another device.
)doc");

REGISTER_OP("Sok>CopyBatch")
    .Input("batch: resource")
    .Output("tensors: types")
    .Attr("types: list(type) >= 1")
    .Attr("shapes: list(shape)")
    .SetIsStateful()
    .SetShapeFn([](sok::InferenceContext* c) {
      std::vector<tensorflow::PartialTensorShape> shapes;
      TF_RETURN_IF_ERROR(c->GetAttr("shapes", &shapes));
      if (static_cast<int>(shapes.size()) != c->num_outputs()) {
        return absl::InvalidArgumentError("CopyBatch: one shape for each type is needed");
      }
      sok::ShapeHandle handle;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &handle));
      for (int i = 0; i < c->num_outputs(); ++i) {
        sok::ShapeHandle shape;
        TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(shapes[i], &shape));
        c->set_output(i, shape);
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
The tensors of a handle of Sok>HoldBatch on the device of the op, copied beside the work that is queued
there. Returns when they have arrived.

types, shapes: of the tensors.
)doc");
