// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

REGISTER_OP("Sok>Collective")
    .Input("order: resource")
    .Input("inputs: input_types")
    .Output("outputs: output_types")
    .Attr("input_types: list(type) >= 1")
    .Attr("output_types: list(type) >= 1")
    .Attr("body: func")
    .Attr("collective: string")
    .Attr("stage: string")
    .Attr("rank: int")
    .Attr("ranks: int")
    .Attr("sends: {'splits', 'shares', 'all', 'once', 'nothing'}")
    .Attr("timeout: float")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc(R"doc(
Runs a function that holds one collective: counts and times it, limits its time, and says
in its error which collective failed and what the other ranks are doing.

order: a resource that all collectives take, so that a tf.function runs them in the order of the
  program.
body: from inputs to outputs.
collective: its name, equal on all ranks.
stage: the name under which bytes and time are counted.
rank: of this process.
ranks: how many there are.
sends: what of the first input goes to other ranks, for the counters. 'splits': the second input
  says how many slices each rank gets; 'shares': each rank gets a share, the first ones one slice more;
  'all': each rank gets everything; 'once': everything counts once, as the way
  that it takes is the transport's;
  'nothing'.
timeout: seconds after which it fails.
)doc");
