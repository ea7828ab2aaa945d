// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CPU_TABLE_H_
#define SOK_CPU_TABLE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc_ops/core/optimizer_spec.h"
#include "cc_ops/core/status.h"
#include "cc_ops/core/table_config.h"
#include "cc_ops/core/table_ref.h"
#include "cc_ops/cpu/executor.h"
#include "cc_ops/cpu/memory.h"

namespace sok::cpu {

class Grouping;
class Snapshot;

// Ids of one feature, as they came.
struct IdSpan {
  const Key* ids = nullptr;
  std::int64_t count = 0;
};

// How far updates that reach every row lazily ("lazy_global") have gone; see catch_up.h.
struct Lag {
  const OptimizerSpec* optimizer = nullptr;  // null: no row lags behind
  std::vector<float> hyper;                  // of the last update
  float steps = 0;                           // updates since all rows were up to date
  double decay = 0;  // what weight decay has left since then, as a logarithm
};

// A table in host memory: an index (none in a static table) and planes of rows behind it. Row
// numbers address every plane, so a weight and its optimizer states cannot be separated. Slabs
// never move: growth rebuilds the index and adds slabs, and copies no row.
//
// Callers serialise: const functions may run together, anything else runs alone, except that
// find_or_insert may run on many threads between reserve and settle.
class Table {
 public:
  // Fails, naming the bytes, when there is no memory for the capacity asked for.
  static Status create(TableConfig config, std::shared_ptr<Allocator> allocator,
                       std::unique_ptr<Table>* table);

  const TableConfig& config() const { return config_; }
  // Rows that are in use. A static table has all of its rows from the beginning.
  std::int64_t size() const { return config_.is_static() ? config_.rows : live_; }
  // Rows that fit before the index has to grow.
  std::int64_t row_limit() const;
  std::int64_t bytes() const;
  IndexRef index() const { return index_; }
  // Counters by name: rows, capacity, bytes, inserts, erasures, searches' length.
  std::vector<std::pair<std::string, std::int64_t>> stats() const;

  // Gives every row of a static table its initial values.
  void initialize_static(Executor& executor);

  // Row numbers of ids, kNoRow for the unknown; in a static table, for ids out of range, unless the
  // policy is to clip.
  void find(const Key* ids, std::int64_t count, Row* rows) const;
  // For static tables under the policy "error": refuses the first id out of range.
  Status check_range(const Key* ids, std::int64_t count) const;

  // Makes room for every new id of the spans, or changes nothing and says what does not fit.
  Status reserve(Executor& executor, const std::vector<IdSpan>& spans);
  // The same for `rows` keys after a clear().
  Status reserve_total(std::int64_t rows);
  // Row numbers of ids; new ids get a row with its initial values in every plane. A row may be read
  // only once all threads have returned: its inserter may still be filling it. With `blank` nobody
  // fills new rows: the caller writes all of their planes.
  void find_or_insert(const Key* ids, std::int64_t count, Row* rows, bool blank = false);
  // The same for ids that are all different, and of which no other thread has any: threads then
  // wait for each other less.
  void find_or_insert_distinct(const Key* ids, std::int64_t count, Row* rows);
  // Ends a round of find_or_insert.
  void settle();

  // The ids of the last training lookup, with their rows, until an update has used them or keys are
  // forgotten.
  void keep(std::shared_ptr<const Grouping> grouping) { grouping_ = std::move(grouping); }
  const std::shared_ptr<const Grouping>& grouping() const { return grouping_; }

  // Forgets keys; how many of them were there. Their rows are used again by later insertions.
  std::int64_t erase(const Key* ids, std::int64_t count);
  // Forgets all keys; a static table keeps its values and starts its states anew.
  void clear();
  // Of the initial values of later insertions.
  void set_seed(std::uint64_t seed) { config_.initializer.seed = seed; }

  // Adds planes that are not there yet, filled with their initial value: all, or none.
  Status attach_planes(const std::vector<PlaneSpec>& specs);
  // Takes back the planes from this number on. No row lags behind, and no snapshot has them.
  void detach_planes(int first);
  int plane_count() const { return static_cast<int>(planes_.size()); }
  const PlaneSpec& plane_spec(int plane) const { return planes_[plane].spec; }
  int plane_index(const std::string& name) const;  // -1: no such plane

  // Plane 0 holds the values, in the row type; the others are float32 states.
  template <typename T>
  PlaneRef<T> plane(int i) const {
    const Plane& p = planes_[i];
    return {static_cast<T*>(p.pointers.empty() ? nullptr : p.pointers[0]),
            reinterpret_cast<T* const*>(p.pointers.data()), shape_, p.spec.width};
  }

  // What a row starts with in a plane, from now on.
  void set_initial(int plane, float initial) { planes_[plane].spec.initial = initial; }

  // The table as it is now, for a reader who comes later; in a static table of these rows only.
  std::shared_ptr<Snapshot> snapshot(std::vector<int> planes, std::int64_t first_row,
                                     std::int64_t last_row);
  // Who writes rows that were there before says so first: snapshots then copy what they need.
  void preserve(Executor& executor, const Row* rows, std::int64_t count);
  // Whether anybody may want them preserved.
  bool has_snapshots() const { return !snapshots_.empty(); }
  // The same for planes from this number on.
  bool has_snapshots_of(int first_plane) const;

  // See catch_up.h.
  Lag& lag() { return lag_; }
  const Lag& lag() const { return lag_; }

  // Every key with its row number, in the order of the index (static: 0 .. rows - 1).
  void entries(std::vector<Key>* keys, std::vector<Row>* rows) const;

  // The row that a lookup gives for an id that has none, as floats.
  void default_row(Key key, float* out) const;

 private:
  // New rows that are initialised together: the stores to them are not held up by the atomics of
  // the index.
  static constexpr std::int64_t kNewRows = 32;

  struct Plane {
    PlaneSpec spec;
    std::size_t element_bytes = 4;
    std::vector<Memory> slabs;
    std::vector<void*> pointers;
  };

  Table(TableConfig config, std::shared_ptr<Allocator> allocator)
      : config_(std::move(config)), allocator_(std::move(allocator)) {}

  Status grow_index(Executor& executor, std::int64_t keys);
  Status grow_rows(std::int64_t rows);
  Status add_slab(Plane* plane);
  void fill_initial(Plane* plane);
  std::int64_t count_new(Executor& executor, const std::vector<IdSpan>& spans) const;
  Row new_row(std::int64_t i) const;  // of the insertion number i since the last settle
  void initialize_rows(const Key* keys, const Row* rows, std::int64_t count);
  template <typename F>
  void for_each_snapshot(F&& f);
  Status no_memory(const char* what, std::size_t bytes) const;

  TableConfig config_;
  std::shared_ptr<Allocator> allocator_;

  Memory control_memory_;
  std::shared_ptr<Memory> slot_memory_;  // shared with snapshots
  IndexRef index_;
  SlabShape shape_;
  std::vector<Plane> planes_;
  std::size_t slabs_ = 0;       // slabs that every plane has
  std::int64_t slab_rows_ = 0;  // rows in them

  std::int64_t live_ = 0;                  // keys in the index
  std::int64_t deleted_ = 0;               // slots marked deleted
  std::int64_t next_row_ = 0;              // rows below were given out at some time
  std::vector<Row> free_rows_;             // rows of erased keys
  std::atomic<std::int64_t> inserted_{0};  // since the last settle
  std::atomic<std::int64_t> reused_{0};    // of these into slots marked deleted
  std::int64_t total_inserted_ = 0, total_erased_ = 0, growths_ = 0;
  Lag lag_;
  std::shared_ptr<const Grouping> grouping_;
  std::vector<std::weak_ptr<Snapshot>> snapshots_;
};

// A round of insertions into tables: however it ends, they are settled.
class Insertions {
 public:
  explicit Insertions(std::vector<Table*> tables) : tables_(std::move(tables)) {}
  Insertions(const Insertions&) = delete;
  Insertions& operator=(const Insertions&) = delete;
  ~Insertions() {
    for (Table* table : tables_) table->settle();
  }

 private:
  std::vector<Table*> tables_;
};

}  // namespace sok::cpu

#endif  // SOK_CPU_TABLE_H_
