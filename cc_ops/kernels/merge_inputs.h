// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_KERNELS_MERGE_INPUTS_H_
#define SOK_KERNELS_MERGE_INPUTS_H_

#include <vector>

#include "cc_ops/kernels/device.h"
#include "cc_ops/kernels/feature_inputs.h"

namespace sok {

// The features of each table with the gradients of their outputs, from the input "gradients".
template <typename Device>
Status read_merge_features(tensorflow::OpKernelContext* context, const FeatureInputs& inputs,
                           const std::vector<tensorflow::DataType>& types,
                           std::vector<std::vector<typename Device::MergeFeature>>* features) {
  std::vector<Bags> bags;
  SOK_RETURN_IF_ERROR(inputs.read(context, Device::kOnHost, &bags));
  tensorflow::OpInputList gradients;
  if (!context->input_list("gradients", &gradients).ok()) {
    return {Code::kInternal, "the gradients are missing"};
  }
  features->resize(inputs.tables());
  for (int f = 0; f < inputs.features(); ++f) {
    if (gradients[f].dims() != 2 || gradients[f].dim_size(0) != bags[f].bags ||
        gradients[f].dim_size(1) != inputs.dimension(f)) {
      return invalid_argument("feature ", f, ": the gradient's shape ",
                              gradients[f].shape().DebugString(), " is not [", bags[f].bags, ", ",
                              inputs.dimension(f), "]");
    }
    (*features)[inputs.table_of(f)].push_back(
        {bags[f], {row_type_of(types[f]), gradients[f].data()}});
  }
  return {};
}

}  // namespace sok

#endif  // SOK_KERNELS_MERGE_INPUTS_H_
