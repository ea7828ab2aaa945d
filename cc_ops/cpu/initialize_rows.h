// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CPU_INITIALIZE_ROWS_H_
#define SOK_CPU_INITIALIZE_ROWS_H_

#include <cstdint>

#include "cc_ops/core/initialize.h"
#include "cc_ops/core/types.h"

namespace sok::cpu {

// Fills rows[i], [width], with the initial values of keys[i]: those of sok::initialize_row, many
// blocks of columns at a time.
void initialize_rows(const Initializer& initializer, const Key* keys, std::int64_t count,
                     std::int64_t width, float* const* rows);
void initialize_rows(const Initializer& initializer, const Key* keys, std::int64_t count,
                     std::int64_t width, Half* const* rows);
void initialize_rows(const Initializer& initializer, const Key* keys, std::int64_t count,
                     std::int64_t width, BFloat16* const* rows);

}  // namespace sok::cpu

#endif  // SOK_CPU_INITIALIZE_ROWS_H_
