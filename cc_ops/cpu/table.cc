// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/table.h"

#include <algorithm>
#include <cstring>

#include "cc_ops/cpu/index.h"
#include "cc_ops/cpu/key_map.h"
#include "cc_ops/cpu/snapshot.h"
#include "cc_ops/cpu/vector_ops.h"

namespace sok::cpu {
namespace {

// Below this many groups a second thread costs more than it brings when an index grows.
constexpr std::int64_t kGroupsAPiece = 1024;

}  // namespace

Status Table::create(TableConfig config, std::shared_ptr<Allocator> allocator,
                     std::unique_ptr<Table>* result) {
  if (config.dimension < 1) {
    return invalid_argument("table '", config.name, "': dimension must be at least 1, got ",
                            config.dimension);
  }
  const std::int64_t rows =
      config.is_static() ? config.rows
      : config.max_capacity > 0
          ? std::min(std::max<std::int64_t>(config.capacity, 1), config.max_capacity)
          : std::max<std::int64_t>(config.capacity, 1);
  if (rows > kMostRows) {
    return invalid_argument("table '", config.name, "': ", rows, " rows asked for, at most ",
                            kMostRows, " fit one table of a rank");
  }
  std::unique_ptr<Table> table(new Table(std::move(config), std::move(allocator)));
  const TableConfig& c = table->config_;
  table->shape_ = SlabShape::for_rows(c.is_static() ? std::max<std::int64_t>(rows, 1)
                                                    : std::max<std::int64_t>(rows, 64));
  Plane values;
  values.spec = {"values", c.dimension, 0};
  values.element_bytes = static_cast<std::size_t>(row_type_bytes(c.row_type));
  table->planes_.push_back(std::move(values));
  if (!c.is_static()) {
    ThreadExecutor executor(1);
    SOK_RETURN_IF_ERROR(table->grow_index(executor, rows));
  }
  SOK_RETURN_IF_ERROR(table->grow_rows(rows));
  *result = std::move(table);
  return {};
}

std::int64_t Table::row_limit() const {
  if (config_.is_static()) return config_.rows;
  const std::int64_t limit = std::min(limit_of(index_.groups) - deleted_, slab_rows_);
  return config_.max_capacity > 0 ? std::min(limit, config_.max_capacity) : limit;
}

std::int64_t Table::bytes() const {
  std::int64_t total = static_cast<std::int64_t>(control_memory_.bytes());
  if (slot_memory_ != nullptr) total += static_cast<std::int64_t>(slot_memory_->bytes());
  for (const Plane& plane : planes_) {
    for (const Memory& slab : plane.slabs) total += static_cast<std::int64_t>(slab.bytes());
  }
  return total;
}

std::vector<std::pair<std::string, std::int64_t>> Table::stats() const {
  // Groups read to find each key: the length of the way from its home.
  std::int64_t groups_read = 0;
  for (std::uint32_t word = 0; word < 2 * index_.groups; ++word) {
    for (std::uint64_t full = match_full(index_.control[word]); full != 0; full &= full - 1) {
      const std::uint32_t home =
          index_.home(index_.hash(index_.slots[word * 8 + first_byte(full)].key));
      const std::uint32_t group = word / 2;
      groups_read += 1 + (group >= home ? group - home : group + index_.groups - home);
    }
  }
  return {{"rows", size()},
          {"row_limit", row_limit()},
          {"index_slots", static_cast<std::int64_t>(index_.groups) * kGroup},
          {"deleted_slots", deleted_},
          {"groups_read_to_find_all", groups_read},
          {"bytes", bytes()},
          {"pinned_bytes", 0},
          {"inserted", total_inserted_},
          {"erased", total_erased_},
          {"index_growths", growths_}};
}

Status Table::no_memory(const char* what, std::size_t wanted) const {
  return resource_exhausted("table '", config_.name, "': no memory for ", what, ": ", wanted,
                            " bytes asked for, ", bytes(),
                            " bytes in use by this table; it is unchanged");
}

void Table::find(const Key* ids, std::int64_t count, Row* rows) const {
  if (config_.is_static()) {
    if (config_.out_of_range != OutOfRange::kClip || config_.rows == 0) {
      return rows_of_ids(ids, count, config_.rows, rows);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      rows[i] = static_cast<Row>(std::clamp<Key>(ids[i], 0, config_.rows - 1));
    }
    return;
  }
  visit_ahead(index_, ids, count,
              [&](std::int64_t i, std::uint64_t hash) { rows[i] = index_.find(ids[i], hash); });
}

Status Table::check_range(const Key* ids, std::int64_t count) const {
  if (!config_.is_static() || config_.out_of_range != OutOfRange::kError) return {};
  if (all_in_range(ids, count, config_.rows)) return {};
  for (std::int64_t i = 0; i < count; ++i) {
    if (ids[i] >= 0 && ids[i] < config_.rows) continue;
    return invalid_argument("table '", config_.name, "': id ", ids[i], " at position ", i,
                            " is out of range: the table has ", config_.rows,
                            " rows (pass out_of_range=\"zero\" or \"clip\" to accept such ids)");
  }
  return {};
}

std::int64_t Table::count_new(Executor& executor, const std::vector<IdSpan>& spans) const {
  std::vector<Key> missing;
  for (const IdSpan& span : spans) {
    std::vector<Row> rows(span.count);
    executor.parallel_for(span.count, 50, [&](std::int64_t begin, std::int64_t end) {
      find(span.ids + begin, end - begin, rows.data() + begin);
    });
    for (std::int64_t i = 0; i < span.count; ++i) {
      if (rows[i] == kNoRow) missing.push_back(span.ids[i]);
    }
  }
  KeyMap distinct(static_cast<std::int64_t>(missing.size()));
  for (Key key : missing) distinct.number(key, mix64(static_cast<std::uint64_t>(key)));
  return static_cast<std::int64_t>(distinct.keys().size());
}

Status Table::reserve(Executor& executor, const std::vector<IdSpan>& spans) {
  if (config_.is_static()) return {};
  std::int64_t ids = 0;
  for (const IdSpan& span : spans) ids += span.count;
  if (live_ + ids <= row_limit()) return {};
  // The cheap bound was passed: count the keys that are really new, unless the batch is small next
  // to the table; growing a little early then costs less than counting at every step.
  const bool count = config_.max_capacity > 0 || ids > live_ / 2;
  const std::int64_t wanted = live_ + (count ? count_new(executor, spans) : ids);
  if (config_.max_capacity > 0 && wanted > config_.max_capacity) {
    return resource_exhausted("table '", config_.name, "': ", wanted - live_,
                              " new ids do not fit: it holds ", live_, " of at most ",
                              config_.max_capacity,
                              " rows; raise max_capacity or erase rows; it is unchanged");
  }
  if (wanted > kMostRows) {
    return resource_exhausted("table '", config_.name, "': ", wanted, " rows, at most ", kMostRows,
                              " fit one table of a rank; it is unchanged");
  }
  // Rows first: an index that could point past the slabs never exists.
  SOK_RETURN_IF_ERROR(grow_rows(wanted));
  if (wanted + deleted_ <= limit_of(index_.groups)) return {};
  // Doubling, and not less than the batch in hand: growth is rare, and its cost a constant a key.
  const std::int64_t doubled = live_ + live_ / 8 + ids / 8 > limit_of(index_.groups) / 2
                                   ? 2 * limit_of(index_.groups)
                                   : limit_of(index_.groups);
  return grow_index(executor, std::max(wanted, std::min(doubled, kMostRows)));
}

Status Table::reserve_total(std::int64_t rows) {
  if (config_.is_static()) return {};
  const std::int64_t most = config_.max_capacity > 0 ? config_.max_capacity : kMostRows;
  if (rows > most) return too_many_rows(config_.name, rows, most);
  SOK_RETURN_IF_ERROR(grow_rows(rows));
  ThreadExecutor executor(1);
  return rows <= limit_of(index_.groups) ? Status() : grow_index(executor, rows);
}

Status Table::grow_index(Executor& executor, std::int64_t keys) {
  if (config_.max_capacity > 0) keys = std::min(keys, config_.max_capacity);
  const std::uint32_t groups = groups_for(std::max(keys, live_));
  const std::size_t control_bytes = std::size_t{groups} * kGroup;
  const std::size_t slot_bytes = std::size_t{groups} * kGroup * sizeof(Slot);
  Memory control(allocator_, control_bytes);
  auto slots = std::make_shared<Memory>(allocator_, slot_bytes);
  if (control.data() == nullptr || slots->data() == nullptr) {
    return no_memory("the index", control_bytes + slot_bytes);
  }
  std::memset(control.data(), static_cast<int>(kEmptyByte), control_bytes);
  IndexRef grown;
  grown.control = static_cast<std::uint64_t*>(control.data());
  grown.slots = static_cast<Slot*>(slots->data());
  grown.groups = groups;
  grown.hash_mask = config_.collide ? 0 : ~0ULL;
  // Keys are known to be different: appending to a group is all there is to do. Slots come almost
  // in the order of their hash, so that memory is walked in sequence, and threads keep to a range
  // of both indices; what leaves its range is left for later.
  const std::int64_t pieces =
      std::clamp<std::int64_t>(index_.groups / kGroupsAPiece, 1, executor.threads());
  std::vector<std::vector<Slot>> left(pieces);
  const auto bound = [pieces](std::uint32_t all, std::int64_t piece) {
    return static_cast<std::uint32_t>(all * piece / pieces);
  };
  executor.parallel_for(
      pieces, index_.groups / pieces * 50, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t p = begin; p < end; ++p) {
          const std::uint32_t first = bound(groups, p), last = bound(groups, p + 1);
          for_each_slot(index_, bound(index_.groups, p), bound(index_.groups, p + 1),
                        [&](const Slot& slot) {
                          if (!append(grown, slot, first, last)) left[p].push_back(slot);
                        });
        }
      });
  for (const std::vector<Slot>& slots_left : left) {
    for (const Slot& slot : slots_left) {
      grown.find_or_insert(slot.key, grown.hash(slot.key), [&] { return slot.row; });
    }
  }
  index_ = grown;
  if (control_memory_.data() != nullptr) ++growths_;
  control_memory_ = std::move(control);
  slot_memory_ = std::move(slots);
  deleted_ = 0;
  return {};
}

Row Table::new_row(std::int64_t i) const {
  const auto free = static_cast<std::int64_t>(free_rows_.size());
  return i < free ? free_rows_[free - 1 - i] : static_cast<Row>(next_row_ + i - free);
}

void Table::find_or_insert(const Key* ids, std::int64_t count, Row* rows, bool blank) {
  if (config_.is_static()) return find(ids, count, rows);
  Key new_keys[kNewRows];
  Row new_rows[kNewRows];
  std::int64_t fresh = 0, reused = 0;
  const auto allocate = [this] {
    return new_row(inserted_.fetch_add(1, std::memory_order_relaxed));
  };
  visit_ahead(index_, ids, count, [&](std::int64_t i, std::uint64_t hash) {
    const FoundOrInserted found = index_.find_or_insert(ids[i], hash, allocate);
    rows[i] = found.row;
    reused += found.reused;
    if (!found.inserted || blank) return;
    new_keys[fresh] = ids[i];
    new_rows[fresh] = found.row;
    if (++fresh < kNewRows) return;
    initialize_rows(new_keys, new_rows, fresh);
    fresh = 0;
  });
  if (fresh > 0) initialize_rows(new_keys, new_rows, fresh);
  if (reused > 0) reused_.fetch_add(reused, std::memory_order_relaxed);
}

void Table::find_or_insert_distinct(const Key* ids, std::int64_t count, Row* rows) {
  if (config_.is_static()) return find(ids, count, rows);
  Key new_keys[kNewRows];
  Row new_rows[kNewRows];
  std::int64_t places[kNewRows];
  std::uint32_t slots[kNewRows];
  std::int64_t fresh = 0, reused = 0;
  const auto give_rows = [&] {
    const std::int64_t first = inserted_.fetch_add(fresh, std::memory_order_relaxed);
    for (std::int64_t k = 0; k < fresh; ++k) {
      new_rows[k] = new_row(first + k);
      index_.slots[slots[k]].row = new_rows[k];
      rows[places[k]] = new_rows[k];
    }
    initialize_rows(new_keys, new_rows, fresh);
    fresh = 0;
  };
  visit_ahead(index_, ids, count, [&](std::int64_t i, std::uint64_t hash) {
    const FoundOrInserted found = index_.find_or_insert(ids[i], hash, [] { return kNoRow; });
    rows[i] = found.row;
    reused += found.reused;
    if (!found.inserted) return;
    new_keys[fresh] = ids[i];
    places[fresh] = i;
    slots[fresh] = found.slot;
    if (++fresh == kNewRows) give_rows();
  });
  give_rows();
  if (reused > 0) reused_.fetch_add(reused, std::memory_order_relaxed);
}

void Table::settle() {
  const std::int64_t inserted = inserted_.exchange(0);
  const auto free = static_cast<std::int64_t>(free_rows_.size());
  const std::int64_t reused = std::min(inserted, free);
  free_rows_.resize(free - reused);
  next_row_ += inserted - reused;
  live_ += inserted;
  deleted_ -= reused_.exchange(0);
  total_inserted_ += inserted;
}

template <typename F>
void Table::for_each_snapshot(F&& f) {
  for (std::size_t i = 0; i < snapshots_.size();) {
    if (const auto snapshot = snapshots_[i].lock()) {
      f(*snapshot);
      ++i;
    } else {
      snapshots_.erase(snapshots_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

std::int64_t Table::erase(const Key* ids, std::int64_t count) {
  ThreadExecutor executor(1);
  keep(nullptr);
  std::int64_t erased = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t slot = index_.find_slot(ids[i], index_.hash(ids[i]));
    if (slot == kNoRow) continue;
    for_each_snapshot([&](Snapshot& snapshot) { snapshot.forget(executor, *this, slot); });
    free_rows_.push_back(index_.slots[slot].row);
    // No search runs past a group that has an empty slot, so there the slot can be empty again.
    const std::uint32_t word = slot / 8;
    const std::uint64_t empty =
        match_empty(index_.control[word]) | match_empty(index_.control[word ^ 1]);
    const std::uint64_t mark = empty != 0 ? kEmptyByte : kDeletedByte;
    const std::uint32_t shift = slot % 8 * 8;
    index_.control[word] = (index_.control[word] & ~(0xffULL << shift)) | (mark << shift);
    if (empty == 0) ++deleted_;
    --live_;
    ++erased;
  }
  total_erased_ += erased;
  return erased;
}

void Table::clear() {
  ThreadExecutor executor(1);
  keep(nullptr);
  if (config_.is_static()) {
    if (!snapshots_.empty()) {
      std::vector<Key> keys;
      std::vector<Row> rows;
      entries(&keys, &rows);
      preserve(executor, rows.data(), config_.rows);
    }
    for (int i = 1; i < plane_count(); ++i) fill_initial(&planes_[i]);
    return;
  }
  for_each_snapshot([&](Snapshot& snapshot) { snapshot.forget_all(executor, *this); });
  std::memset(index_.control, static_cast<int>(kEmptyByte), std::size_t{index_.groups} * kGroup);
  live_ = deleted_ = next_row_ = 0;
  free_rows_.clear();
}

std::shared_ptr<Snapshot> Table::snapshot(std::vector<int> planes, std::int64_t first_row,
                                          std::int64_t last_row) {
  if (!config_.is_static()) first_row = 0, last_row = next_row_;
  auto snapshot =
      std::make_shared<Snapshot>(*this, std::move(planes), slot_memory_, first_row, last_row);
  snapshot->done(free_rows_);  // nobody's
  snapshots_.push_back(snapshot);
  return snapshot;
}

bool Table::has_snapshots_of(int first_plane) const {
  return std::any_of(snapshots_.begin(), snapshots_.end(), [&](const auto& held) {
    const auto snapshot = held.lock();
    return snapshot != nullptr && std::any_of(snapshot->planes().begin(), snapshot->planes().end(),
                                              [&](int plane) { return plane >= first_plane; });
  });
}

void Table::preserve(Executor& executor, const Row* rows, std::int64_t count) {
  for_each_snapshot([&](Snapshot& snapshot) { snapshot.preserve(executor, *this, rows, count); });
}

void Table::entries(std::vector<Key>* keys, std::vector<Row>* rows) const {
  keys->clear();
  rows->clear();
  keys->reserve(size());
  rows->reserve(size());
  if (config_.is_static()) {
    for (std::int64_t row = 0; row < config_.rows; ++row) {
      keys->push_back(row);
      rows->push_back(static_cast<Row>(row));
    }
    return;
  }
  for_each_slot(index_, 0, index_.groups, [&](const Slot& slot) {
    keys->push_back(slot.key);
    rows->push_back(slot.row);
  });
}

}  // namespace sok::cpu
