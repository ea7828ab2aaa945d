// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_KERNELS_FEATURE_INPUTS_H_
#define SOK_KERNELS_FEATURE_INPUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc_ops/core/batch.h"
#include "cc_ops/core/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// The attributes and inputs that SOK_FEATURE_ATTRS describes, checked.
class FeatureInputs {
 public:
  explicit FeatureInputs(tensorflow::OpKernelConstruction* context);

  int features() const { return static_cast<int>(table_of_.size()); }
  int tables() const { return static_cast<int>(dimensions_.size()); }
  int table_of(int feature) const { return table_of_[feature]; }
  std::int64_t dimension(int feature) const { return dimensions_[table_of_[feature]]; }
  std::int64_t table_dimension(int table) const { return dimensions_[table]; }
  float max_norm(int feature) const { return max_norms_[table_of_[feature]]; }
  float table_max_norm(int table) const { return max_norms_[table]; }
  bool weighted(int feature) const { return weighted_[feature]; }

  // The bags of every feature, pointing into the op's inputs. Row splits are checked if the host
  // may read them; kernels on a device clamp them instead.
  Status read(tensorflow::OpKernelContext* context, bool on_host, std::vector<Bags>* bags) const;

 private:
  std::vector<std::int32_t> table_of_, dimensions_;
  std::vector<float> max_norms_;
  std::vector<std::string> combiners_;
  std::vector<bool> ragged_, weighted_;
};

}  // namespace sok

#endif  // SOK_KERNELS_FEATURE_INPUTS_H_
