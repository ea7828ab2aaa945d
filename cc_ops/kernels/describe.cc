// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// What the library can do, as JSON, for Python: so that a list of names exists once.
#include <string>

#include "cc_ops/core/combine.h"
#include "cc_ops/core/optimizer_spec.h"
#include "cc_ops/core/types.h"

namespace {

template <typename List, typename ToText>
std::string json_list(const List& list, ToText&& to_text) {
  std::string out = "[";
  for (const auto& item : list) {
    if (out.size() > 1) out += ", ";
    out += to_text(item);
  }
  return out + "]";
}

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

std::string describe() {
  using sok::OptimizerSpec;
  using sok::StateSpec;
  const std::string optimizers = json_list(sok::optimizer_specs(), [](const OptimizerSpec& spec) {
    return "{\"name\": " + quoted(spec.name) + ", \"hyper\": " + json_list(spec.hyper, quoted) +
           ", \"states\": " +
           json_list(spec.states,
                     [](const StateSpec& state) {
                       return "{\"name\": " + quoted(state.name) +
                              ", \"per_row\": " + (state.per_row ? "true" : "false") +
                              ", \"initial\": " + quoted(state.initial) + "}";
                     }) +
           ", \"catch_up\": " + quoted(sok::kCatchUpNames[static_cast<int>(spec.catch_up)]) + "}";
  });
  std::string row_types;
#define SOK_ROW_TYPE_NAME(T, value, name) \
  row_types += (row_types.empty() ? "\"" #name "\"" : ", \"" #name "\"");
  SOK_FOR_EACH_ROW_TYPE(SOK_ROW_TYPE_NAME)
#undef SOK_ROW_TYPE_NAME
  return "{\"combiners\": " + json_list(sok::kCombinerNames, quoted) +
         ", \"reaches\": " + json_list(sok::kReachNames, quoted) + ", \"row_types\": [" +
         row_types + "], \"optimizers\": " + optimizers + "}";
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* sok_describe() {
  static const std::string* text = new std::string(describe());
  return text->c_str();
}
