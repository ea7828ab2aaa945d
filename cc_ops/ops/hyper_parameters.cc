// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/ops/shapes.h"

REGISTER_OP("Sok>HyperParameters")
    .Input("scalars: num_scalars * float")
    .Output("hyper: float")
    .Attr("num_scalars: int >= 0")
    .Attr("places: list(int)")
    .Attr("values: list(float)")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      std::vector<float> values;
      TF_RETURN_IF_ERROR(c->GetAttr("values", &values));
      c->set_output(0, c->Vector(static_cast<std::int64_t>(values.size())));
      return absl::OkStatus();
    })
    .Doc(R"doc(
A vector of hyper-parameters, most of which are known when the graph is made; at most 16.

scalars: those that are not, one value each.
places: of the scalars in the vector.
values: of the others; what stands at `places` does not matter.
hyper: [number of values].
)doc");
