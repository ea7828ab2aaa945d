// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// What every collective of this process has in common: it is the one that runs now, it has a
// number, and a time limit.
#ifndef SOK_KERNELS_COLLECTIVE_WATCH_H_
#define SOK_KERNELS_COLLECTIVE_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace sok {

// One running collective.
class WatchedCollective {
 public:
  virtual ~WatchedCollective() = default;
  // The time limit has passed.
  virtual void on_timeout() = 0;
};

// Registers a collective that begins now; the watch holds it until `seconds` have passed or until
// end_collective. Returns its step: how many collectives of this name have begun, this one
// included.
std::int64_t begin_collective(const std::string& name, double seconds,
                              std::shared_ptr<WatchedCollective> collective);
void end_collective(const WatchedCollective* collective);

// Notes that a collective of this name has failed here, and says what the other ranks are doing,
// for the error message; empty if nobody knows.
std::string explain_failure(const std::string& name);

}  // namespace sok

#endif  // SOK_KERNELS_COLLECTIVE_WATCH_H_
