// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Writes what a process's GPU did, one JSON object a line: kernels, copies, memsets,
// synchronisations. The CUDA driver loads it into any program:
//
//   g++ -shared -fPIC -O2 -I$CUDA/include -I$CUDA/extras/CUPTI/include trace.cc \
//     -o libtrace.so -lcupti
//   CUDA_INJECTION64_PATH=$PWD/libtrace.so SOK_TRACE=trace.jsonl program
#include <cupti.h>
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

namespace {

std::FILE* out = nullptr;
std::mutex mutex;

std::string readable(const char* name) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? demangled : name;
  std::free(demangled);
  // Up to the parameters: those of templates stay.
  int depth = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (result[i] == '<') ++depth;
    if (result[i] == '>') --depth;
    if (depth == 0 && result[i] == '(' && result.compare(i, 11, "(anonymous ") != 0)
      return result.substr(0, i);
  }
  return result;
}

void write(const char* kind, const std::string& name, std::uint64_t start, std::uint64_t end,
           std::uint64_t bytes) {
  std::fprintf(
      out,
      "{\"kind\": \"%s\", \"name\": \"%s\", \"start_ns\": %llu, \"ns\": %llu, \"bytes\": %llu}\n",
      kind, name.c_str(), static_cast<unsigned long long>(start),
      static_cast<unsigned long long>(end - start), static_cast<unsigned long long>(bytes));
}

void record(CUpti_Activity* activity) {
  switch (activity->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto* k = reinterpret_cast<CUpti_ActivityKernel9*>(activity);
      write("kernel", readable(k->name), k->start, k->end, 0);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto* m = reinterpret_cast<CUpti_ActivityMemcpy5*>(activity);
      const char* name = m->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "host to device"
                         : m->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "device to host"
                                                                          : "device to device";
      write("copy", name, m->start, m->end, m->bytes);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto* m = reinterpret_cast<CUpti_ActivityMemset4*>(activity);
      write("memset", "", m->start, m->end, m->bytes);
      break;
    }
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
      const auto* s = reinterpret_cast<CUpti_ActivitySynchronization*>(activity);
      const char* name =
          s->type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE    ? "stream"
          : s->type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE ? "context"
                                                                               : "event";
      write("synchronise", name, s->start, s->end, 0);
      break;
    }
    default:
      break;
  }
}

void CUPTIAPI lend(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
  *size = 8 << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, *size));
  *records = 0;
}

void CUPTIAPI take(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  const std::lock_guard<std::mutex> lock(mutex);
  CUpti_Activity* activity = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &activity) == CUPTI_SUCCESS) record(activity);
  std::free(buffer);
}

void finish() {
  cuptiActivityFlushAll(1);
  const std::lock_guard<std::mutex> lock(mutex);
  std::fflush(out);
}

}  // namespace

extern "C" int InitializeInjection() {
  const char* path = std::getenv("SOK_TRACE");
  if (path == nullptr || (out = std::fopen(path, "w")) == nullptr) return 0;
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
        CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION}) {
    if (cuptiActivityEnable(kind) != CUPTI_SUCCESS) return 0;
  }
  if (cuptiActivityRegisterCallbacks(lend, take) != CUPTI_SUCCESS) return 0;
  std::atexit(finish);
  return 1;
}
