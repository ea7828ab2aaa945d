// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CPU_INITIALIZE_ROWS_H_
#define SOK_CPU_INITIALIZE_ROWS_H_

#include <cstdint>

#include "cc_ops/core/initialize.h"
#include "cc_ops/core/types.h"

namespace sok::cpu {

// The same values as sok::initialize_row, several blocks of columns at a time.
void initialize_row(const Initializer& initializer, Key key, std::int64_t width, float* row);
void initialize_row(const Initializer& initializer, Key key, std::int64_t width, Half* row);
void initialize_row(const Initializer& initializer, Key key, std::int64_t width, BFloat16* row);

}  // namespace sok::cpu

#endif  // SOK_CPU_INITIALIZE_ROWS_H_
