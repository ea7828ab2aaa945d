// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_OPS_SHAPES_H_
#define SOK_OPS_SHAPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

// Attributes shared by the ops that take the features of one lookup: which table each feature
// reads, how its bags are laid out and combined.
#define SOK_FEATURE_ATTRS                                \
  Attr("num_tables: int >= 1")                           \
      .Attr("num_features: int >= 1")                    \
      .Attr("table_of: list(int)")                       \
      .Attr("combiners: list({'sum', 'mean', 'sqrtn'})") \
      .Attr("ragged: list(bool)")                        \
      .Attr("weighted: list(bool)")                      \
      .Attr("dimensions: list(int)")                     \
      .Attr("max_norms: list(float)")

#define SOK_FEATURE_DOC               \
  "tables: the tables of the call.\n" \
  "ids: one tensor a feature: [batch, hotness], or [n] flat ids if ragged.\n" SOK_BAG_DOC

#define SOK_BAG_DOC                                                        \
  "row_splits: [batch + 1] if ragged, else ignored.\n"                     \
  "weights: as many as ids if weighted, else ignored.\n"                   \
  "table_of: for each feature the position of its table in `tables`.\n"    \
  "combiners: for each feature how the rows of a bag become one vector.\n" \
  "dimensions: the width of each table's rows.\n"                          \
  "max_norms: for each table the length to which longer rows are scaled down; 0: none.\n"

namespace sok {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// [batch, dimension] for every feature; the inputs are tables, ids, row_splits, weights.
inline absl::Status lookup_shape(InferenceContext* c) {
  std::vector<std::int32_t> table_of, dimensions;
  std::vector<bool> ragged;
  TF_RETURN_IF_ERROR(c->GetAttr("table_of", &table_of));
  TF_RETURN_IF_ERROR(c->GetAttr("dimensions", &dimensions));
  TF_RETURN_IF_ERROR(c->GetAttr("ragged", &ragged));
  std::vector<ShapeHandle> ids, row_splits;
  TF_RETURN_IF_ERROR(c->input("ids", &ids));
  TF_RETURN_IF_ERROR(c->input("row_splits", &row_splits));
  if (table_of.size() != ids.size() || ragged.size() != ids.size()) {
    return absl::InvalidArgumentError("table_of and ragged need one entry a feature");
  }
  for (std::size_t f = 0; f < ids.size(); ++f) {
    if (table_of[f] < 0 || table_of[f] >= static_cast<int>(dimensions.size())) {
      return absl::InvalidArgumentError("table_of names a table that is not there");
    }
    DimensionHandle batch;
    ShapeHandle checked;
    if (ragged[f]) {
      TF_RETURN_IF_ERROR(c->WithRank(ids[f], 1, &checked));
      TF_RETURN_IF_ERROR(c->WithRank(row_splits[f], 1, &checked));
      TF_RETURN_IF_ERROR(c->Subtract(c->Dim(row_splits[f], 0), 1, &batch));
    } else {
      TF_RETURN_IF_ERROR(c->WithRank(ids[f], 2, &checked));
      batch = c->Dim(ids[f], 0);
    }
    c->set_output(static_cast<int>(f), c->Matrix(batch, dimensions[table_of[f]]));
  }
  return absl::OkStatus();
}

}  // namespace sok

#endif  // SOK_OPS_SHAPES_H_
