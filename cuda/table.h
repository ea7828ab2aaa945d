// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CUDA_TABLE_H_
#define SOK_CUDA_TABLE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc_ops/core/status.h"
#include "cc_ops/core/table_config.h"
#include "cuda/context.h"
#include "cuda/table_view.h"

namespace sok::cuda {

// A table in device memory: the same index, planes and slabs as sok::cpu::Table. How many rows it
// holds is known exactly only on the device; the host keeps an upper bound, and asks the device
// (one synchronisation) only when that bound passes the capacity.
class Table {
 public:
  static Status create(Context& context, TableConfig config, std::unique_ptr<Table>* table);

  const TableConfig& config() const { return config_; }
  std::int64_t bytes() const;

  // The table as kernels see it: on the host, and the copy in device memory.
  TableView view() const;
  Status device_view(Context& context, const TableView** view);

  // Raises what an earlier kernel recorded: an id out of range of a static table.
  Status check_offending(Context& context);

  // Makes room for `ids` ids, all of which may be new, or changes nothing. Synchronises only if the
  // bound is passed.
  Status reserve(Context& context, std::int64_t ids);
  // Room for so many rows in all, or changes nothing. Synchronises.
  Status reserve_total(Context& context, std::int64_t rows);
  // The number of the latest reserve: kernels report it when its insertions are done.
  std::uint64_t round() const { return round_; }

  // These synchronise.
  Status size(Context& context, std::int64_t* rows);
  // Keys and row numbers of all rows, in device memory.
  Status entries(Context& context, std::int64_t* count, Buffer* keys, Buffer* rows);
  Status erase(Context& context, const Key* keys, std::int64_t count, std::int64_t* erased);
  Status clear(Context& context);
  // Of the initial values of later insertions.
  void set_seed(std::uint64_t seed) {
    config_.initializer.seed = seed;
    view_is_current_ = false;
  }
  Status stats(Context& context, std::vector<std::pair<std::string, std::int64_t>>* stats);

  // Adds planes that are not there yet, filled with their initial value: all, or none.
  Status attach_planes(Context& context, const std::vector<PlaneSpec>& specs);
  // Takes back the planes from this number on.
  void detach_planes(int first);
  int plane_count() const { return static_cast<int>(planes_.size()); }
  const PlaneSpec& plane_spec(int plane) const { return planes_[plane].spec; }
  int plane_index(const std::string& name) const;

  // Scratch of the merge stage, one zero word a row; whoever uses it leaves zeros.
  Status row_tags(Context& context, std::uint32_t** tags);
  Status zero_tags(Context& context);

 private:
  struct Plane {
    PlaneSpec spec;
    std::size_t element_bytes = 4;
    std::vector<Buffer> slabs;
    std::vector<void*> pointers;
    Buffer device_pointers;  // a copy of `pointers`; grows with the slabs
  };

  explicit Table(TableConfig config) : config_(std::move(config)) {}

  Status initialize_static(Context& context);
  Status attach_plane(Context& context, const PlaneSpec& spec);
  Status grow_index(Context& context, std::int64_t keys);
  Status grow_rows(Context& context, std::int64_t rows);
  Buffer allocate_slab(Context& context, std::size_t bytes);
  std::int64_t slab_bytes(bool pinned) const;
  Status add_slab(Context& context, Plane* plane, std::size_t number);
  Status publish_slabs(Context& context, Plane* plane);
  Status fill_initial(Context& context, const Plane& plane, std::size_t slab);
  Status synchronise_counters(Context& context);
  void take_reports();
  Status count_deleted(Context& context);
  StateView state(int plane) const;
  std::int64_t row_limit() const;
  Status no_memory(const char* what, std::size_t bytes) const;

  TableConfig config_;
  IndexRef index_;
  Buffer control_, slots_;
  SlabShape shape_;
  std::vector<Plane> planes_;
  std::size_t slabs_ = 0;
  std::int64_t slab_rows_ = 0;

  Buffer taken_, reports_, free_rows_, suppressed_, offending_, default_vector_, tags_, view_;
  bool view_is_current_ = false;
  std::int64_t tag_rows_ = 0;

  // As of the last synchronised moment: keys, rows of erased keys, the first row never used.
  std::int64_t live_ = 0, free_ = 0, next_ = 0;
  std::int64_t bound_ = 0;  // at most so many keys are in the index
  // Rounds of insertions: the last one, the last before the synchronised moment, and the ids of
  // those whose outcome the device has not reported.
  std::uint64_t round_ = 0, settled_round_ = 0;
  std::deque<std::pair<std::uint64_t, std::int64_t>> pending_;
  std::int64_t deleted_ = 0;  // slots marked deleted, at most; see count_deleted
  std::int64_t growths_ = 0, total_erased_ = 0;
};

}  // namespace sok::cuda

#endif  // SOK_CUDA_TABLE_H_
