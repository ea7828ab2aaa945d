// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CORE_STATUS_H_
#define SOK_CORE_STATUS_H_

#include <sstream>
#include <string>
#include <utility>

namespace sok {

// Names follow TensorFlow's codes, so that the op boundary maps them one to one.
enum class Code {
  kOk,
  kInvalidArgument,
  kNotFound,
  kResourceExhausted,
  kFailedPrecondition,
  kInternal
};

// The result of anything below the ops that can fail. A failed call leaves the table as it was.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <typename... Parts>
Status invalid_argument(const Parts&... parts) {
  return {Code::kInvalidArgument, concat(parts...)};
}

template <typename... Parts>
Status resource_exhausted(const Parts&... parts) {
  return {Code::kResourceExhausted, concat(parts...)};
}

#define SOK_RETURN_IF_ERROR(expression)                                               \
  do {                                                                                \
    if (::sok::Status sok_status = (expression); !sok_status.ok()) return sok_status; \
  } while (false)

}  // namespace sok

#endif  // SOK_CORE_STATUS_H_
