// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/table.h"

#include <algorithm>
#include <cstring>

#include "cc_ops/cpu/initialize_rows.h"
#include "cc_ops/cpu/key_map.h"
#include "cc_ops/cpu/snapshot.h"

namespace sok::cpu {
namespace {

// Ids on their way per thread: each has its control words fetched, a little later its likely slot, and is
// looked up when both should be there.
constexpr std::int64_t kControlAhead = 32, kSlotsAhead = 16;
// New rows that are initialised together: the stores to them are not held up by the atomics of the index.
constexpr std::int64_t kNewRows = 32;
// Below this many groups a second thread costs more than it brings when an index grows.
constexpr std::int64_t kGroupsAPiece = 1024;

// Calls visit(i, hash of ids[i]) for all ids, in order; meanwhile the index's memory for the next ones is
// brought into the cache, so that their misses overlap.
template <typename Visit>
void visit_ahead(const IndexRef& index, const Key* ids, std::int64_t count, Visit&& visit) {
  std::uint64_t hashes[2 * kControlAhead];
  const auto hash_of = [&](std::int64_t i) -> std::uint64_t& {
    return hashes[static_cast<std::uint64_t>(i) % (2 * kControlAhead)];
  };
  const auto fetch_control = [&](std::int64_t i) {
    hash_of(i) = index.hash(ids[i]);
    __builtin_prefetch(index.control + 2 * std::uint64_t{index.home(hash_of(i))});
  };
  const auto fetch_slot = [&](std::int64_t i) {
    const std::uint32_t group = index.home(hash_of(i));
    const std::uint64_t words[2] = {load_acquire(index.control + 2 * std::uint64_t{group}),
                                    load_acquire(index.control + 2 * std::uint64_t{group} + 1)};
    const std::uint64_t fingerprint = IndexRef::fingerprint(hash_of(i));
    const std::uint64_t match[2] = {match_byte(words[0], fingerprint),
                                    match_byte(words[1], fingerprint)};
    // Where it seems to be, or where it would go.
    const std::uint64_t* where = (match[0] | match[1]) != 0 ? match : nullptr;
    const std::uint64_t free[2] = {match_free(words[0]), match_free(words[1])};
    if (where == nullptr) where = free;
    if ((where[0] | where[1]) == 0) return;
    const std::uint32_t w = where[0] != 0 ? 0 : 1;
    __builtin_prefetch(index.slots + (std::uint64_t{group} * kGroup + w * 8 + first_byte(where[w])));
  };
  for (std::int64_t i = 0; i < std::min(kControlAhead, count); ++i) fetch_control(i);
  for (std::int64_t i = 0; i < std::min(kSlotsAhead, count); ++i) fetch_slot(i);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kControlAhead < count) fetch_control(i + kControlAhead);
    if (i + kSlotsAhead < count) fetch_slot(i + kSlotsAhead);
    visit(i, hash_of(i));
  }
}

// Calls visit(slot) for the full slots of the groups [first, last), in order.
template <typename Visit>
void for_each_slot(const IndexRef& index, std::uint32_t first, std::uint32_t last, Visit&& visit) {
  for (std::uint64_t word = 2 * std::uint64_t{first}; word < 2 * std::uint64_t{last}; ++word) {
    for (std::uint64_t full = match_full(index.control[word]); full != 0; full &= full - 1) {
      visit(index.slots[word * 8 + first_byte(full)]);
    }
  }
}

// Puts a key that is not there into the groups [first, last) of an index without deleted slots, if its home is
// one of them and they have room from there on. Nobody else may be there.
bool append(const IndexRef& index, const Slot& slot, std::uint32_t first, std::uint32_t last) {
  const std::uint64_t hash = index.hash(slot.key);
  std::uint32_t group = index.home(hash);
  if (group < first) return false;
  for (; group < last; ++group) {
    for (std::uint64_t word = 2 * std::uint64_t{group}; word < 2 * std::uint64_t{group} + 2; ++word) {
      const std::uint64_t empty = match_empty(index.control[word]);
      if (empty == 0) continue;
      const std::uint32_t place = first_byte(empty);
      index.control[word] ^= (kEmptyByte ^ IndexRef::fingerprint(hash)) << (8 * place);
      index.slots[word * 8 + place] = slot;
      return true;
    }
  }
  return false;
}

}  // namespace

Status Table::create(TableConfig config, std::shared_ptr<Allocator> allocator,
                     std::unique_ptr<Table>* result) {
  if (config.dimension < 1) {
    return invalid_argument("table '", config.name, "': dimension must be at least 1, got ",
                            config.dimension);
  }
  const std::int64_t rows = config.is_static() ? config.rows
                            : config.max_capacity > 0
                                ? std::min(std::max<std::int64_t>(config.capacity, 1),
                                           config.max_capacity)
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
      const std::uint32_t home = index_.home(index_.hash(index_.slots[word * 8 + first_byte(full)].key));
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
    const Key last = config_.rows - 1;
    const bool clip = config_.out_of_range == OutOfRange::kClip && last >= 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const Key id = clip ? std::clamp<Key>(ids[i], 0, last) : ids[i];
      rows[i] = id < 0 || id > last ? kNoRow : static_cast<Row>(id);
    }
    return;
  }
  visit_ahead(index_, ids, count, [&](std::int64_t i, std::uint64_t hash) {
    rows[i] = index_.find(ids[i], hash);
  });
}

Status Table::check_range(const Key* ids, std::int64_t count) const {
  if (!config_.is_static() || config_.out_of_range != OutOfRange::kError) return {};
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
  // The cheap bound was passed: count the keys that are really new, unless the batch is small next to
  // the table; growing a little early then costs less than counting at every step.
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
  // Keys are known to be different: appending to a group is all there is to do. Slots come almost in the order
  // of their hash, so that memory is walked in sequence, and threads keep to a range of both indices; what
  // leaves its range is left for later.
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

Status Table::add_slab(Plane* plane) {
  const auto number = static_cast<std::uint32_t>(plane->slabs.size());
  const std::size_t bytes =
      shape_.rows_in(number) * static_cast<std::size_t>(plane->spec.width) * plane->element_bytes;
  Memory slab(allocator_, bytes);
  if (slab.data() == nullptr) return no_memory(plane->spec.name.c_str(), bytes);
  plane->pointers.push_back(slab.data());
  plane->slabs.push_back(std::move(slab));
  return {};
}

Status Table::grow_rows(std::int64_t rows) {
  while (slab_rows_ < rows) {
    for (Plane& plane : planes_) {
      // After a failure half-way a plane already has this slab.
      if (plane.slabs.size() > slabs_) continue;
      SOK_RETURN_IF_ERROR(add_slab(&plane));
    }
    slab_rows_ += static_cast<std::int64_t>(shape_.rows_in(static_cast<std::uint32_t>(slabs_)));
    ++slabs_;
  }
  return {};
}

Row Table::new_row(std::int64_t i) const {
  const auto free = static_cast<std::int64_t>(free_rows_.size());
  return i < free ? free_rows_[free - 1 - i] : static_cast<Row>(next_row_ + i - free);
}

void Table::initialize_rows(const Key* keys, const Row* rows, std::int64_t count) {
  with_row_type(config_.row_type, [&](auto type) {
    using T = decltype(type);
    const PlaneRef<T> values = plane<T>(0);
    T* pointers[kNewRows];
    for (std::int64_t i = 0; i < count; ++i) pointers[i] = values.row(rows[i]);
    cpu::initialize_rows(config_.initializer, keys, count, values.width, pointers);
  });
  for (int p = 1; p < plane_count(); ++p) {
    const PlaneRef<float> states = plane<float>(p);
    for (std::int64_t i = 0; i < count; ++i) {
      std::fill_n(states.row(rows[i]), states.width, planes_[p].spec.initial);
    }
  }
}

void Table::initialize_static(Executor& executor) {
  executor.parallel_for(
      config_.rows, config_.dimension * 5, [this](std::int64_t begin, std::int64_t end) {
        for (std::int64_t first = begin; first < end; first += kNewRows) {
          Key keys[kNewRows];
          Row rows[kNewRows];
          const std::int64_t count = std::min(kNewRows, end - first);
          for (std::int64_t i = 0; i < count; ++i) {
            keys[i] = (first + i) * config_.id_stride + config_.id_offset;
            rows[i] = static_cast<Row>(first + i);
          }
          initialize_rows(keys, rows, count);
        }
      });
}

void Table::find_or_insert(const Key* ids, std::int64_t count, Row* rows, bool blank) {
  if (config_.is_static()) return find(ids, count, rows);
  Key new_keys[kNewRows];
  Row new_rows[kNewRows];
  std::int64_t fresh = 0;
  const auto allocate = [this] {
    return new_row(inserted_.fetch_add(1, std::memory_order_relaxed));
  };
  visit_ahead(index_, ids, count, [&](std::int64_t i, std::uint64_t hash) {
    const FoundOrInserted found = index_.find_or_insert(ids[i], hash, allocate);
    rows[i] = found.row;
    if (!found.inserted || blank) return;
    new_keys[fresh] = ids[i];
    new_rows[fresh] = found.row;
    if (++fresh < kNewRows) return;
    initialize_rows(new_keys, new_rows, fresh);
    fresh = 0;
  });
  initialize_rows(new_keys, new_rows, fresh);
}

void Table::find_or_insert_distinct(const Key* ids, std::int64_t count, Row* rows) {
  if (config_.is_static()) return find(ids, count, rows);
  Key new_keys[kNewRows];
  Row new_rows[kNewRows];
  std::int64_t places[kNewRows];
  std::uint32_t slots[kNewRows];
  std::int64_t fresh = 0;
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
    if (!found.inserted) return;
    new_keys[fresh] = ids[i];
    places[fresh] = i;
    slots[fresh] = found.slot;
    if (++fresh == kNewRows) give_rows();
  });
  give_rows();
}

void Table::settle() {
  const std::int64_t inserted = inserted_.exchange(0);
  const auto free = static_cast<std::int64_t>(free_rows_.size());
  const std::int64_t reused = std::min(inserted, free);
  free_rows_.resize(free - reused);
  next_row_ += inserted - reused;
  live_ += inserted;
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

void Table::preserve(Executor& executor, const Row* rows, std::int64_t count) {
  for_each_snapshot(
      [&](Snapshot& snapshot) { snapshot.preserve(executor, *this, rows, count); });
}

int Table::plane_index(const std::string& name) const {
  for (int i = 0; i < plane_count(); ++i) {
    if (planes_[i].spec.name == name) return i;
  }
  return -1;
}

Status Table::attach_planes(const std::vector<PlaneSpec>& specs) {
  std::vector<Plane> added;
  for (const PlaneSpec& spec : specs) {
    const int known = plane_index(spec.name);
    if (known >= 0) {
      if (planes_[known].spec.width != spec.width) {
        return invalid_argument("table '", config_.name, "': plane '", spec.name, "' has width ",
                                planes_[known].spec.width, ", not ", spec.width);
      }
      continue;
    }
    Plane plane;
    plane.spec = spec;
    while (plane.slabs.size() < slabs_) SOK_RETURN_IF_ERROR(add_slab(&plane));
    if (spec.initial != 0.0f) fill_initial(&plane);
    added.push_back(std::move(plane));
  }
  for (Plane& plane : added) planes_.push_back(std::move(plane));
  return {};
}

void Table::fill_initial(Plane* plane) {
  std::int64_t left = config_.is_static() ? config_.rows : next_row_;
  for (std::size_t s = 0; s < plane->slabs.size() && left > 0; ++s) {
    const auto rows = std::min<std::int64_t>(
        left, static_cast<std::int64_t>(shape_.rows_in(static_cast<std::uint32_t>(s))));
    std::fill_n(static_cast<float*>(plane->pointers[s]), rows * plane->spec.width,
                plane->spec.initial);
    left -= rows;
  }
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

void Table::default_row(Key key, float* out) const {
  const bool out_of_range = config_.is_static();
  if (out_of_range || config_.default_row == DefaultRow::kZeros) {
    std::fill_n(out, config_.dimension, 0.0f);
  } else if (config_.default_row == DefaultRow::kVector) {
    std::copy_n(config_.default_vector.data(), config_.dimension, out);
  } else {
    // Through the row type, so that the value is the one that an insertion would store.
    with_row_type(config_.row_type, [&](auto type) {
      using T = decltype(type);
      for (std::int64_t c = 0; c < config_.dimension; c += 4) {
        float four[4];
        config_.initializer.block(key, static_cast<std::uint32_t>(c >> 2), four);
        for (std::int64_t i = c; i < std::min(c + 4, config_.dimension); ++i) {
          out[i] = to_float(from_float<T>(four[i - c]));
        }
      }
    });
  }
}

}  // namespace sok::cpu
