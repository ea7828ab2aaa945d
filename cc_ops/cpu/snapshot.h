// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SOK_CPU_SNAPSHOT_H_
#define SOK_CPU_SNAPSHOT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc_ops/cpu/executor.h"
#include "cc_ops/cpu/key_map.h"
#include "cc_ops/cpu/memory.h"
#include "cc_ops/cpu/table.h"

namespace sok::cpu {

// A table as it was at one moment, to be read piece by piece while the table goes on changing.
//
// Nothing is copied at first but one bit a slot and one a row. A row that is about to be written,
// and is still to be read, is copied then (Table::preserve): memory follows what changes, not what
// the table holds. The slots of the index are shared with the table until it grows, and then kept.
//
// Made and read while the table is locked against writers; preserved and forgotten by writers.
class Snapshot {
 public:
  // What Table::snapshot gives it. `slots`: of the index, null in a static table.
  Snapshot(const Table& table, std::vector<int> planes, std::shared_ptr<Memory> slots,
           std::int64_t first_row, std::int64_t last_row);

  // Rows that are there to be read, at first.
  std::int64_t rows() const { return rows_; }
  std::int64_t row_bytes() const { return record_bytes_; }
  const std::vector<int>& planes() const { return planes_; }
  // Bytes that exist because of this snapshot.
  std::int64_t bytes() const;
  std::int64_t preserved_rows() const { return static_cast<std::int64_t>(copies_.keys().size()); }

  // The next rows, `limit` of them (at least one) or what is left; none: all have been read.
  void next(std::int64_t limit, std::vector<Key>* keys, std::vector<Row>* rows);
  // Their values in plane `planes()[p]`, [rows, width].
  void read(Executor& executor, const Table& table, std::size_t p, const std::vector<Row>& rows,
            float* out);
  // Ends the reading of rows that next() gave: from now on they may change.
  void done(const std::vector<Row>& rows);

  // Copies those of the rows that are still to be read.
  void preserve(Executor& executor, const Table& table, const Row* rows, std::int64_t count);
  // The same before a slot loses its key, or all slots do.
  void forget(Executor& executor, const Table& table, std::uint32_t slot);
  void forget_all(Executor& executor, const Table& table);

 private:
  bool is_pending(Row row) const {
    return row / 64 < pending_.size() && (pending_[row / 64] >> (row % 64) & 1) != 0;
  }
  void set_pending(Row row) { pending_[row / 64] |= std::uint64_t{1} << (row % 64); }
  void clear_pending(Row row) { pending_[row / 64] &= ~(std::uint64_t{1} << (row % 64)); }
  char* record(std::uint32_t number) const {
    return blocks_[number / block_records_].get() + number % block_records_ * record_bytes_;
  }

  std::vector<int> planes_;
  std::vector<std::int64_t> offsets_;  // of each plane in a record
  std::int64_t record_bytes_ = 0;
  std::int64_t block_records_ = 1;

  std::shared_ptr<Memory> slots_;
  std::vector<std::uint8_t>
      full_;  // one bit a slot: its key is still to be given out (from cursor_ on)
  std::vector<std::uint64_t> pending_;  // one bit a row: it is still to be read, from the table
  std::int64_t rows_ = 0;
  std::int64_t cursor_ = 0;  // static: the next row; else the next byte of full_
  std::int64_t last_row_ = 0;

  // Keys that the table has forgotten; their rows are copied.
  std::vector<Slot> orphans_;

  KeyMap copies_{0};  // row -> number of its record
  std::vector<std::unique_ptr<char[]>> blocks_;
};

}  // namespace sok::cpu

#endif  // SOK_CPU_SNAPSHOT_H_
