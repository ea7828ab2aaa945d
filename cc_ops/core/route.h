// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CORE_ROUTE_H_
#define SOK_CORE_ROUTE_H_

#include <cstdint>

#include "cc_ops/core/hash.h"
#include "cc_ops/core/host_device.h"
#include "cc_ops/core/types.h"

namespace sok {

// On which rank the row of an id lives.
struct Placement {
  std::uint32_t ranks = 1;
  std::int32_t owner = -1;  // the rank that has every row of a localized table; -1: distributed
  bool is_static = false;

  SOK_HD std::uint32_t rank_of(Key id) const {
    if (owner >= 0) return static_cast<std::uint32_t>(owner);
    if (is_static) return static_cast<std::uint32_t>(static_cast<std::uint64_t>(id) % ranks);
    return owner_of(id, ranks);
  }

  // The id under which its owner keeps the row: the rows of a static table lie close on each rank.
  SOK_HD Key local_id(Key id) const {
    return is_static && owner < 0 ? static_cast<Key>(static_cast<std::uint64_t>(id) / ranks) : id;
  }
};

}  // namespace sok

#endif  // SOK_CORE_ROUTE_H_
