// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CORE_DEDUPE_H_
#define SOK_CORE_DEDUPE_H_

#include <cstdint>

#include "cc_ops/core/host_device.h"
#include "cc_ops/core/table_config.h"
#include "cc_ops/core/types.h"

namespace sok {

// Which ids a table has rows for, and whose row an id outside of them reads.
struct IdRange {
  std::int64_t rows = -1;  // of a static table; -1: every id is legal
  OutOfRange policy = OutOfRange::kError;

  SOK_HD bool contains(Key id) const { return rows < 0 || (id >= 0 && id < rows); }

  // Replaces `id` by the id whose row its gradient belongs to; false if there is none.
  SOK_HD bool target(Key* id) const {
    if (contains(*id)) return true;
    if (policy != OutOfRange::kClip || rows == 0) return false;
    *id = *id < 0 ? 0 : rows - 1;
    return true;
  }
};

}  // namespace sok

#endif  // SOK_CORE_DEDUPE_H_
