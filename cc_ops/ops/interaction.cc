// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/core/interaction.h"

#include "cc_ops/ops/shapes.h"

namespace sok {
namespace {

// [batch, width], which all vectors have.
absl::Status vector_shape(InferenceContext* c, ShapeHandle* shape) {
  std::vector<ShapeHandle> vectors;
  TF_RETURN_IF_ERROR(c->input("vectors", &vectors));
  *shape = c->UnknownShapeOfRank(2);
  for (const ShapeHandle& vector : vectors) TF_RETURN_IF_ERROR(c->Merge(*shape, vector, shape));
  return absl::OkStatus();
}

}  // namespace
}  // namespace sok

REGISTER_OP("Sok>DotInteraction")
    .Input("vectors: N * T")
    .Output("products: T")
    .Attr("N: int >= 2")
    .Attr("T: {float, half, bfloat16}")
    .Attr("beside: int >= 0 = 0")
    .SetShapeFn([](sok::InferenceContext* c) {
      sok::ShapeHandle shape;
      TF_RETURN_IF_ERROR(sok::vector_shape(c, &shape));
      int beside = 0;
      TF_RETURN_IF_ERROR(c->GetAttr("beside", &beside));
      tensorflow::shape_inference::DimensionHandle columns;
      TF_RETURN_IF_ERROR(c->Multiply(c->Dim(shape, 1), beside, &columns));
      TF_RETURN_IF_ERROR(c->Add(columns, sok::pair_count(c->num_inputs()), &columns));
      c->set_output(0, c->Matrix(c->Dim(shape, 0), columns));
      return absl::OkStatus();
    })
    .Doc(R"doc(
The dot product of every two vectors of an example.

vectors: each [batch, width].
products: [batch, beside * width + N * (N - 1) / 2]: the first vectors, then the products of the pairs
  (0, 1), (0, 2), ..., (N - 2, N - 1).
beside: how many of the first vectors stand before the products.
)doc");

REGISTER_OP("Sok>DotInteractionGrad")
    .Input("vectors: N * T")
    .Input("gradient: T")
    .Output("gradients: N * T")
    .Attr("N: int >= 2")
    .Attr("T: {float, half, bfloat16}")
    .Attr("beside: int >= 0 = 0")
    .SetShapeFn([](sok::InferenceContext* c) {
      sok::ShapeHandle shape;
      TF_RETURN_IF_ERROR(sok::vector_shape(c, &shape));
      for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, shape);
      return absl::OkStatus();
    })
    .Doc(R"doc(
The gradients of the vectors of Sok>DotInteraction.

gradient: of its result.
gradients: one [batch, width] a vector. Of a vector that is not finite they are NaN.
)doc");
