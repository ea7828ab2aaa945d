// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/kernels/collective_watch.h"

#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

namespace sok {
namespace {

using Clock = std::chrono::steady_clock;
// Fills a buffer with a text.
using Explain = void (*)(const char* name, char* buffer, int size);

struct Running {
  std::string name;
  std::int64_t step;
  Clock::time_point start, deadline;
  std::shared_ptr<WatchedCollective> collective;
};

class Watch {
 public:
  // Never destroyed: its thread may outlive main().
  static Watch& get() {
    static auto* watch = new Watch;
    return *watch;
  }

  std::int64_t add(const std::string& name, double seconds,
                   std::shared_ptr<WatchedCollective> collective) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!started_) {
      std::thread([this] { run(); }).detach();
      started_ = true;
    }
    const Clock::time_point now = Clock::now();
    const auto limit =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    const std::int64_t step = ++steps_[name];
    running_.push_back({name, step, now, now + limit, std::move(collective)});
    // Waking the thread for each collective would cost more than the collective of a small batch.
    if (running_.back().deadline < next_check_) changed_.notify_one();
    return step;
  }

  void remove(const WatchedCollective* collective) {
    std::shared_ptr<WatchedCollective> last;  // destroyed outside of the lock
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = running_.begin(); it != running_.end(); ++it) {
      if (it->collective.get() != collective) continue;
      last = std::move(it->collective);
      running_.erase(it);
      return;
    }
  }

  // As JSON: the oldest collective that runs now, if one does, and the last one that failed.
  std::string now() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::ostringstream out;
    out << "{\"failed\": \"" << failed_ << "\"";
    if (!running_.empty()) {
      const Running& oldest = running_.front();
      out << ", \"name\": \"" << oldest.name << "\", \"step\": " << oldest.step << ", \"seconds\": "
          << std::chrono::duration<double>(Clock::now() - oldest.start).count();
    }
    out << "}";
    return out.str();
  }

  void set_explain(Explain explain) {
    std::lock_guard<std::mutex> lock(mutex_);
    explain_ = explain;
  }

  std::string explain(const std::string& name) {
    Explain explain;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      failed_ = name;
      explain = explain_;
    }
    if (explain == nullptr) return "";
    std::vector<char> buffer(8192, '\0');
    explain(name.c_str(), buffer.data(), static_cast<int>(buffer.size()));
    return buffer.data();
  }

 private:
  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      next_check_ = Clock::now() + std::chrono::seconds(1);
      std::vector<std::shared_ptr<WatchedCollective>> late;
      for (auto it = running_.begin(); it != running_.end();) {
        if (it->deadline <= Clock::now()) {
          late.push_back(std::move(it->collective));
          it = running_.erase(it);
        } else {
          next_check_ = std::min(next_check_, it->deadline);
          ++it;
        }
      }
      if (!late.empty()) {
        lock.unlock();
        for (const auto& collective : late) collective->on_timeout();
        lock.lock();
        continue;
      }
      changed_.wait_until(lock, next_check_);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Clock::time_point next_check_ = Clock::now();
  std::list<Running> running_;
  std::map<std::string, std::int64_t> steps_;
  std::string failed_;
  Explain explain_ = nullptr;
  bool started_ = false;
};

}  // namespace

std::int64_t begin_collective(const std::string& name, double seconds,
                              std::shared_ptr<WatchedCollective> collective) {
  return Watch::get().add(name, seconds, std::move(collective));
}

void end_collective(const WatchedCollective* collective) { Watch::get().remove(collective); }

std::string explain_failure(const std::string& name) { return Watch::get().explain(name); }

}  // namespace sok

// The collective that runs now, as JSON. Valid until the thread's next call.
extern "C" __attribute__((visibility("default"))) const char* sok_collective_now() {
  thread_local std::string text;
  text = sok::Watch::get().now();
  return text.c_str();
}

// Sets who says, in an error, what the other ranks are doing.
extern "C" __attribute__((visibility("default"))) void sok_set_explain(sok::Explain explain) {
  sok::Watch::get().set_explain(explain);
}
