// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/kernels/feature_inputs.h"

#include "cc_ops/kernels/op_boundary.h"

namespace sok {
namespace {

// Row splits that lie would make the loops read outside of the ids.
Status check_splits(int feature, const std::int64_t* splits, std::int64_t count, std::int64_t ids) {
  if (splits[0] != 0) return bad_row_splits(feature, 0, splits[0], 0, ids);
  for (std::int64_t i = 1; i < count; ++i) {
    if (splits[i] >= splits[i - 1]) continue;
    return bad_row_splits(feature, i, splits[i], splits[i - 1], ids);
  }
  const std::int64_t last = splits[count - 1];
  return last == ids ? Status() : bad_row_splits(feature, count - 1, last, last, ids);
}

}  // namespace

FeatureInputs::FeatureInputs(tensorflow::OpKernelConstruction* context) {
  int features = 0, tables = 0;
  OP_REQUIRES_OK(context, context->GetAttr("num_features", &features));
  OP_REQUIRES_OK(context, context->GetAttr("num_tables", &tables));
  OP_REQUIRES_OK(context, context->GetAttr("table_of", &table_of_));
  OP_REQUIRES_OK(context, context->GetAttr("combiners", &combiners_));
  OP_REQUIRES_OK(context, context->GetAttr("ragged", &ragged_));
  OP_REQUIRES_OK(context, context->GetAttr("weighted", &weighted_));
  OP_REQUIRES_OK(context, context->GetAttr("dimensions", &dimensions_));
  OP_REQUIRES_OK(context, context->GetAttr("max_norms", &max_norms_));
  const auto n = static_cast<std::size_t>(features);
  OP_REQUIRES(context,
              table_of_.size() == n && combiners_.size() == n && ragged_.size() == n &&
                  weighted_.size() == n,
              absl::InvalidArgumentError(
                  "table_of, combiners, ragged and weighted need one entry a feature"));
  const auto t = static_cast<std::size_t>(tables);
  OP_REQUIRES(context, dimensions_.size() == t && max_norms_.size() == t,
              absl::InvalidArgumentError("dimensions and max_norms need one entry a table"));
  for (std::int32_t table : table_of_) {
    OP_REQUIRES(context, table >= 0 && table < tables,
                absl::InvalidArgumentError("table_of names a table that is not there"));
  }
}

Status FeatureInputs::read(tensorflow::OpKernelContext* context, bool on_host,
                           std::vector<Bags>* bags) const {
  tensorflow::OpInputList ids, row_splits, weights;
  for (auto [name, list] : {std::pair("ids", &ids), std::pair("row_splits", &row_splits),
                            std::pair("weights", &weights)}) {
    if (auto status = context->input_list(name, list); !status.ok()) {
      return {Code::kInternal, std::string(status.message())};
    }
  }
  for (int f = 0; f < features(); ++f) {
    Bags b;
    b.ids = ids[f].flat<std::int64_t>().data();
    b.combiner = enum_of<Combiner>(kCombinerNames, combiners_[f]);
    const std::int64_t count = ids[f].NumElements();
    b.known_count = count;
    if (ragged_[f]) {
      const auto splits = row_splits[f].flat<std::int64_t>();
      b.row_splits = splits.data();
      b.bags = splits.size() - 1;
      if (splits.size() < 1) return invalid_argument("feature ", f, ": row_splits is empty");
      if (on_host) SOK_RETURN_IF_ERROR(check_splits(f, b.row_splits, splits.size(), count));
      // A device looks at the splits bag by bag, and there is none.
      if (b.bags == 0 && count > 0) return bad_row_splits(f, 0, 0, 0, count);
    } else {
      if (ids[f].dims() != 2) {
        return invalid_argument("feature ", f, ": dense ids must have the shape [batch, hotness], ",
                                "got ", ids[f].shape().DebugString());
      }
      b.bags = ids[f].dim_size(0);
      b.hotness = ids[f].dim_size(1);
    }
    if (weighted_[f]) {
      if (weights[f].NumElements() != count) {
        return invalid_argument("feature ", f, ": ", count, " ids but ", weights[f].NumElements(),
                                " weights: they must be equally many");
      }
      b.weights = weights[f].flat<float>().data();
    }
    bags->push_back(b);
  }
  return {};
}

}  // namespace sok
