// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// What a table is, and whether the next batch has room in it.
#include <algorithm>

#include "cc_ops/core/batch.h"
#include "cuda/launch.cuh"
#include "cuda/table.h"
#include "cuda/table_memory.cuh"

namespace sok::cuda {

Status Table::create(Context& context, TableConfig config, std::unique_ptr<Table>* result) {
  if (config.dimension < 1) {
    return invalid_argument("table '", config.name, "': dimension must be at least 1, got ",
                            config.dimension);
  }
  std::int64_t rows = config.is_static() ? config.rows : std::max<std::int64_t>(config.capacity, 1);
  if (!config.is_static() && config.max_capacity > 0) rows = std::min(rows, config.max_capacity);
  if (rows > kMostRows) {
    return invalid_argument("table '", config.name, "': ", rows, " rows asked for, at most ",
                            kMostRows, " fit one table of a rank");
  }
  std::unique_ptr<Table> table(new Table(std::move(config)));
  const TableConfig& c = table->config_;
  std::int64_t first_slab = std::max<std::int64_t>(rows, c.is_static() ? 1 : 64);
  if (c.device_bytes != TableConfig::kAllOnDevice) {
    // A slab lies in one memory: the first one is what the device's share holds, and the device.
    const std::int64_t row_bytes = c.dimension * row_type_bytes(c.row_type);
    if (c.device_bytes / row_bytes >= 64) {
      first_slab = std::min(first_slab, c.device_bytes / row_bytes);
      while (first_slab > 64 && context.allocate_at_once(first_slab * row_bytes).data == nullptr) {
        first_slab /= 2;
      }
    }
  }
  table->shape_ = SlabShape::for_rows(first_slab);
  Plane values;
  values.spec = {"values", c.dimension, 0};
  values.element_bytes = static_cast<std::size_t>(row_type_bytes(c.row_type));
  table->planes_.push_back(std::move(values));
  SOK_RETURN_IF_ERROR(zeroed(context, sizeof(unsigned long long), &table->taken_));
  SOK_RETURN_IF_ERROR(zeroed(context, sizeof(std::uint32_t), &table->suppressed_));
  table->offending_ = context.allocate_pinned(sizeof(Offending));
  if (table->offending_.data == nullptr) return resource_exhausted("no pinned host memory");
  *table->offending_.as<Offending>() = {};
  table->reports_ = context.allocate_pinned(sizeof(Taken));
  if (table->reports_.data == nullptr) return resource_exhausted("no pinned host memory");
  *table->reports_.as<Taken>() = {};
  SOK_RETURN_IF_ERROR(to_device(context, c.default_vector.data(), c.default_vector.size(),
                                &table->default_vector_));
  if (!c.is_static()) SOK_RETURN_IF_ERROR(table->grow_index(context, rows));
  SOK_RETURN_IF_ERROR(table->grow_rows(context, rows));
  if (c.is_static()) SOK_RETURN_IF_ERROR(table->initialize_static(context));
  *result = std::move(table);
  return {};
}

std::int64_t Table::row_limit() const {
  if (config_.is_static()) return config_.rows;
  const std::int64_t limit = std::min(limit_of(index_.groups) - deleted_, slab_rows_);
  return config_.max_capacity > 0 ? std::min(limit, config_.max_capacity) : limit;
}

std::int64_t Table::bytes() const {
  const std::size_t others = control_.bytes + slots_.bytes + tags_.bytes + free_rows_.bytes;
  return static_cast<std::int64_t>(others) + slab_bytes(false) + slab_bytes(true);
}

Status Table::no_memory(const char* what, std::size_t wanted) const {
  return resource_exhausted("table '", config_.name, "': no memory for ", what, ": ", wanted,
                            " bytes asked for, ", bytes(),
                            " bytes in use by this table; it is unchanged");
}

TableView Table::view() const {
  TableView view{};
  view.index = index_;
  view.source = {taken_.as<unsigned long long>(), reports_.as<Taken>(), free_rows_.as<Row>(), free_,
                 next_};
  view.shape = shape_;
  view.slab0 = planes_[0].pointers[0];
  view.slabs = static_cast<void* const*>(planes_[0].device_pointers.data);
  view.width = config_.dimension;
  view.rows = config_.rows;
  view.out_of_range = config_.out_of_range;
  view.row_type = config_.row_type;
  view.initializer = config_.initializer;
  view.default_row = config_.is_static() ? DefaultRow::kZeros : config_.default_row;
  view.default_vector = default_vector_.as<float>();
  view.offending = offending_.as<Offending>();
  view.suppressed = suppressed_.as<std::uint32_t>();
  view.state_count = plane_count() - 1;
  for (int i = 1; i < plane_count(); ++i) view.states[i - 1] = state(i);
  return view;
}

Status Table::device_view(Context& context, const TableView** result) {
  if (!view_is_current_) {
    const TableView now = view();
    SOK_RETURN_IF_ERROR(to_device(context, &now, 1, &view_));
    view_is_current_ = true;
  }
  *result = view_.as<TableView>();
  return {};
}

Status Table::check_offending(Context& context) {
  auto* record = offending_.as<Offending>();
  if (*static_cast<volatile std::uint32_t*>(&record->raised) == 0) return {};
  const Offending found = *record;
  *record = {};
  SOK_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(suppressed_.data, 0, sizeof(std::uint32_t), stream_of(context)));
  if (found.feature >= 0) {
    return bad_row_splits(found.feature, found.position, found.value, found.before, found.ids);
  }
  return invalid_argument("table '", config_.name, "': id ", found.value, " at position ",
                          found.position, " is out of range: the table has ", config_.rows,
                          " rows (pass out_of_range=\"zero\" or \"clip\" to accept such ids)");
}

Status Table::synchronise_counters(Context& context) {
  std::int64_t taken = 0;
  SOK_RETURN_IF_ERROR(read_counter(context, taken_.data, &taken));
  const std::int64_t reused = std::min(taken, free_);
  live_ += taken;
  free_ -= reused;
  next_ += taken - reused;
  bound_ = live_;
  settled_round_ = round_;
  pending_.clear();
  view_is_current_ = false;
  SOK_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(taken_.data, 0, sizeof(unsigned long long), stream_of(context)));
  return {};
}

void Table::take_reports() {
  const volatile Taken* report = reports_.as<Taken>();
  // Two reads of the round tell that the pair was not replaced in between.
  const std::uint64_t round = report->round;
  const std::uint64_t count = report->count;
  if (round <= settled_round_ || round != report->round) return;
  while (!pending_.empty() && pending_.front().first <= round) pending_.pop_front();
  bound_ = live_ + static_cast<std::int64_t>(count);
  for (const auto& later : pending_) bound_ += later.second;
}

Status Table::reserve(Context& context, std::int64_t ids) {
  if (config_.is_static()) return {};
  if (bound_ + ids > row_limit()) take_reports();
  if (bound_ + ids > row_limit()) {
    SOK_RETURN_IF_ERROR(synchronise_counters(context));
    const std::int64_t wanted = live_ + ids;
    // A bounded table counts a batch as if all of its ids were new; the caller narrows it down
    // when that does not fit.
    if (config_.max_capacity > 0 && wanted > config_.max_capacity) {
      return resource_exhausted("table '", config_.name, "': ", ids,
                                " new ids do not fit: it holds ", live_, " of at most ",
                                config_.max_capacity,
                                " rows; raise max_capacity or erase rows; it is unchanged");
    }
    if (wanted > kMostRows) {
      return resource_exhausted("table '", config_.name, "': ", wanted, " rows, at most ",
                                kMostRows, " fit one table of a rank; it is unchanged");
    }
    if (wanted + deleted_ > limit_of(index_.groups)) SOK_RETURN_IF_ERROR(count_deleted(context));
    // The index first: it lies in the device's memory, which rows of a hybrid table would fill.
    if (wanted + deleted_ > limit_of(index_.groups)) {
      SOK_RETURN_IF_ERROR(grow_index(context, std::max(wanted, std::min(2 * live_, kMostRows))));
    }
    SOK_RETURN_IF_ERROR(grow_rows(context, wanted));
  }
  bound_ += ids;
  pending_.push_back({++round_, ids});
  return {};
}

Status Table::reserve_total(Context& context, std::int64_t rows) {
  if (config_.is_static()) return {};
  const std::int64_t most = config_.max_capacity > 0 ? config_.max_capacity : kMostRows;
  if (rows > most) return too_many_rows(config_.name, rows, most);
  SOK_RETURN_IF_ERROR(synchronise_counters(context));
  if (rows > limit_of(index_.groups)) SOK_RETURN_IF_ERROR(grow_index(context, rows));
  return grow_rows(context, rows);
}

Status Table::size(Context& context, std::int64_t* rows) {
  if (!config_.is_static()) SOK_RETURN_IF_ERROR(synchronise_counters(context));
  *rows = config_.is_static() ? config_.rows : live_;
  return {};
}

}  // namespace sok::cuda
