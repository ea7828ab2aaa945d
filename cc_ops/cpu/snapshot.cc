// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include "cc_ops/cpu/snapshot.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cc_ops/cpu/vector_ops.h"

namespace sok::cpu {
namespace {

constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;

// The top bits of the bytes of a word, as one byte.
std::uint8_t top_bits(std::uint64_t mask) {
  return static_cast<std::uint8_t>(((mask & kEveryTopBit) >> 7) * 0x0102040810204080ULL >> 56);
}

// Calls f(plane) with the plane in its element type.
template <typename F>
void with_plane(const Table& table, int plane, F&& f) {
  if (plane > 0) return f(table.plane<float>(plane));
  with_row_type(table.config().row_type, [&](auto type) { f(table.plane<decltype(type)>(0)); });
}

}  // namespace

Snapshot::Snapshot(const Table& table, std::vector<int> planes, std::shared_ptr<Memory> slots,
                   std::int64_t first_row, std::int64_t last_row)
    : planes_(std::move(planes)),
      slots_(std::move(slots)),
      cursor_(first_row),
      last_row_(last_row) {
  for (const int plane : planes_) {
    const std::int64_t element = plane > 0 ? 4 : row_type_bytes(table.config().row_type);
    offsets_.push_back(record_bytes_);
    record_bytes_ += (table.plane_spec(plane).width * element + 3) / 4 * 4;
  }
  block_records_ =
      std::max<std::int64_t>(1, kBlockBytes / std::max<std::int64_t>(1, record_bytes_));
  if (slots_ == nullptr) {
    rows_ = last_row_ - cursor_;
    pending_.assign(last_row_ / 64 + 1, 0);
    for (std::int64_t row = cursor_; row < last_row_; ++row) set_pending(static_cast<Row>(row));
    return;
  }
  const IndexRef index = table.index();
  const Slot* slot = index.slots;
  full_.resize(2 * std::size_t{index.groups});
  for (std::size_t word = 0; word < full_.size(); ++word, slot += 8) {
    full_[word] = top_bits(match_full(index.control[word]));
    rows_ += __builtin_popcount(full_[word]);
  }
  pending_.assign(last_row_ / 64, ~std::uint64_t{0});
  pending_.push_back((std::uint64_t{1} << (last_row_ % 64)) - 1);
}

std::int64_t Snapshot::bytes() const {
  const std::size_t copies = blocks_.size() * block_records_ * record_bytes_;
  const std::size_t map = copies_.keys().size() * (sizeof(Key) + 4 * sizeof(std::uint32_t));
  return static_cast<std::int64_t>(full_.size() + pending_.size() * 8 + copies + map +
                                   orphans_.size() * sizeof(Slot));
}

void Snapshot::next(std::int64_t limit, std::vector<Key>* keys, std::vector<Row>* rows) {
  keys->clear();
  rows->clear();
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(limit, 1));
  if (slots_ == nullptr) {
    for (; cursor_ < last_row_ && rows->size() < most; ++cursor_) {
      keys->push_back(cursor_);
      rows->push_back(static_cast<Row>(cursor_));
    }
    return;
  }
  const Slot* slots = static_cast<const Slot*>(slots_->data());
  for (; cursor_ < static_cast<std::int64_t>(full_.size()); ++cursor_) {
    std::uint8_t& bits = full_[cursor_];
    for (; bits != 0 && rows->size() < most; bits = static_cast<std::uint8_t>(bits & (bits - 1))) {
      const Slot& slot = slots[cursor_ * 8 + __builtin_ctz(bits)];
      keys->push_back(slot.key);
      rows->push_back(slot.row);
    }
    if (bits != 0) return;
  }
  while (!orphans_.empty() && rows->size() < most) {
    keys->push_back(orphans_.back().key);
    rows->push_back(orphans_.back().row);
    orphans_.pop_back();
  }
}

void Snapshot::read(Executor& executor, const Table& table, std::size_t p,
                    const std::vector<Row>& rows, float* out) {
  std::vector<const char*> copied(rows.size(), nullptr);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!is_pending(rows[i])) {
      copied[i] = record(copies_.number(rows[i], mix64(rows[i]))) + offsets_[p];
    }
  }
  with_plane(table, planes_[p], [&](auto ref) {
    using T = std::remove_pointer_t<decltype(ref.slab0)>;
    executor.parallel_for(
        static_cast<std::int64_t>(rows.size()), 60 + ref.width,
        [&](std::int64_t begin, std::int64_t end) {
          constexpr std::int64_t kAhead = 8;
          for (std::int64_t i = begin; i < end; ++i) {
            if (i + kAhead < end && copied[i + kAhead] == nullptr) {
              const char* ahead = reinterpret_cast<const char*>(ref.row(rows[i + kAhead]));
              const std::int64_t bytes = ref.width * static_cast<std::int64_t>(sizeof(T));
              for (std::int64_t at = 0; at < bytes && at < 1024; at += 64) {
                __builtin_prefetch(ahead + at);
              }
            }
            const T* row =
                copied[i] == nullptr ? ref.row(rows[i]) : reinterpret_cast<const T*>(copied[i]);
            convert(row, ref.width, out + i * ref.width);
          }
        });
  });
}

void Snapshot::done(const std::vector<Row>& rows) {
  for (const Row row : rows) clear_pending(row);
}

void Snapshot::preserve(Executor& executor, const Table& table, const Row* rows,
                        std::int64_t count) {
  // The bits of rows whose copies are not made yet. They go first, so that a row given twice is
  // copied once, and come back if there is no memory: those rows are still to be read from the
  // table.
  struct Fresh {
    Snapshot* snapshot;
    std::vector<std::pair<Row, std::uint32_t>> rows;
    ~Fresh() {
      for (const auto& [row, number] : rows) snapshot->set_pending(row);
    }
  } copied{this, {}};
  auto& fresh = copied.rows;
  for (std::int64_t i = 0; i < count; ++i) {
    if (rows[i] == kNoRow || !is_pending(rows[i])) continue;
    const std::uint32_t number = copies_.number(rows[i], mix64(rows[i]));
    while (static_cast<std::int64_t>(blocks_.size()) <= number / block_records_) {
      blocks_.emplace_back(new char[block_records_ * record_bytes_]);
    }
    fresh.push_back({rows[i], number});
    clear_pending(rows[i]);
  }
  for (std::size_t p = 0; p < planes_.size(); ++p) {
    with_plane(table, planes_[p], [&](auto ref) {
      using T = std::remove_pointer_t<decltype(ref.slab0)>;
      executor.parallel_for(static_cast<std::int64_t>(fresh.size()), 60 + ref.width,
                            [&](std::int64_t begin, std::int64_t end) {
                              for (std::int64_t i = begin; i < end; ++i) {
                                std::memcpy(record(fresh[i].second) + offsets_[p],
                                            ref.row(fresh[i].first), ref.width * sizeof(T));
                              }
                            });
    });
  }
  fresh.clear();
}

void Snapshot::forget(Executor& executor, const Table& table, std::uint32_t slot) {
  const Slot& forgotten = table.index().slots[slot];
  preserve(executor, table, &forgotten.row, 1);
  // Once the index has grown, the slots here are nobody else's.
  if (slots_->data() != table.index().slots) return;
  const std::uint8_t bit = static_cast<std::uint8_t>(1u << (slot % 8));
  if (slot / 8 < cursor_ || (full_[slot / 8] & bit) == 0) return;
  orphans_.push_back(forgotten);
  full_[slot / 8] = static_cast<std::uint8_t>(full_[slot / 8] & ~bit);
}

void Snapshot::forget_all(Executor& executor, const Table& table) {
  const Slot* slots = static_cast<const Slot*>(slots_->data());
  std::vector<Slot> forgotten;
  std::vector<Row> rows;
  for (std::size_t byte = cursor_; byte < full_.size(); ++byte) {
    for (std::uint32_t bits = full_[byte]; bits != 0; bits &= bits - 1) {
      forgotten.push_back(slots[byte * 8 + __builtin_ctz(bits)]);
      rows.push_back(forgotten.back().row);
    }
  }
  preserve(executor, table, rows.data(), static_cast<std::int64_t>(rows.size()));
  orphans_.insert(orphans_.end(), forgotten.begin(), forgotten.end());
  cursor_ = static_cast<std::int64_t>(full_.size());
}

}  // namespace sok::cpu
