// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cc_ops/core/batch.h"
#include "cuda/launch.cuh"
#include "cuda/table.h"

namespace sok::cuda {
namespace {

constexpr int kBlock = 256;

// Calls f(slot) for the slots of an index that are full, one thread a control word.
template <typename F>
__device__ void for_each_slot(const IndexRef& index, F&& f) {
  const std::int64_t words = 2 * static_cast<std::int64_t>(index.groups);
  for (std::int64_t word = thread_index(); word < words; word += thread_count()) {
    for (std::uint64_t full = match_full(index.control[word]); full != 0; full &= full - 1) {
      f(index.slots[word * 8 + first_byte(full)]);
    }
  }
}

__global__ void rebuild_kernel(IndexRef from, IndexRef to) {
  for_each_slot(from, [&](const Slot& slot) {
    to.find_or_insert(slot.key, to.hash(slot.key), [&] { return slot.row; });
  });
}

__global__ void entries_kernel(IndexRef index, unsigned long long* count, Key* keys, Row* rows) {
  for_each_slot(index, [&](const Slot& slot) {
    const unsigned long long at = atomicAdd(count, 1ULL);
    keys[at] = slot.key;
    rows[at] = slot.row;
  });
}

__global__ void static_entries_kernel(std::int64_t count, Key* keys, Row* rows) {
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) {
    keys[i] = i;
    rows[i] = static_cast<Row>(i);
  }
}

__global__ void probe_length_kernel(IndexRef index, unsigned long long* groups_read) {
  for_each_slot(index, [&](const Slot& slot) {
    const std::uint32_t home = index.home(index.hash(slot.key));
    const auto group = static_cast<std::uint32_t>((&slot - index.slots) / kGroup);
    atomicAdd(groups_read, 1ULL + (group >= home ? group - home : group + index.groups - home));
  });
}

__global__ void count_deleted_kernel(IndexRef index, unsigned long long* deleted) {
  const std::int64_t words = 2 * static_cast<std::int64_t>(index.groups);
  unsigned mine = 0;
  for (std::int64_t word = thread_index(); word < words; word += thread_count()) {
    mine += __popcll(match_deleted(index.control[word]));
  }
  const unsigned of_warp = __reduce_add_sync(kFullMask, mine);
  if (threadIdx.x % kWarp == 0 && of_warp > 0) atomicAdd(deleted, of_warp);
}

__global__ void erase_kernel(IndexRef index, const Key* keys, std::int64_t count, Row* free_rows,
                             unsigned long long* erased) {
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) {
    const std::uint32_t slot = index.find_slot(keys[i], index.hash(keys[i]));
    if (slot == kNoRow) continue;
    std::uint64_t* word = index.control + slot / 8;
    const std::uint32_t shift = slot % 8 * 8;
    // One thread marks the slot, also when a key is given twice.
    for (;;) {
      const std::uint64_t seen = load_acquire(word);
      if (((seen >> shift) & 0x80) != 0) break;
      const std::uint64_t marked = (seen & ~(0xffULL << shift)) | (kDeletedByte << shift);
      if (!compare_and_swap(word, seen, marked)) continue;
      free_rows[atomicAdd(erased, 1ULL)] = index.slots[slot].row;
      index.store_slot(slot, keys[i], kNoRow);  // see forget_slots
      break;
    }
  }
}

__global__ void fill_kernel(float* out, std::int64_t count, float value) {
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) out[i] = value;
}

template <typename T>
__global__ void initialize_kernel(Initializer initializer, std::int64_t id_offset,
                                  std::int64_t id_stride, std::int64_t rows, std::int64_t width,
                                  T* out) {
  const std::int64_t blocks = (width + 3) / 4;
  for (std::int64_t i = thread_index(); i < rows * blocks; i += thread_count()) {
    const std::int64_t row = i / blocks;
    const std::int64_t column = i % blocks * 4;
    float four[4];
    initializer.block(row * id_stride + id_offset, static_cast<std::uint32_t>(column / 4), four);
    for (std::int64_t c = column; c < width && c < column + 4; ++c) {
      out[row * width + c] = from_float<T>(four[c - column]);
    }
  }
}

template <typename T>
Status to_device(Context& context, const T* host, std::size_t count, Buffer* buffer) {
  *buffer = context.allocate(std::max<std::size_t>(1, count * sizeof(T)));
  if (buffer->data == nullptr) {
    return resource_exhausted("no device memory: ", count * sizeof(T), " bytes asked for");
  }
  // From pageable memory: the values are taken before the call returns.
  SOK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(buffer->data, host, count * sizeof(T),
                                           cudaMemcpyHostToDevice, stream_of(context)));
  return {};
}

Status zeroed(Context& context, std::size_t bytes, Buffer* buffer) {
  *buffer = context.allocate(bytes);
  if (buffer->data == nullptr)
    return resource_exhausted("no device memory: ", bytes, " bytes asked for");
  SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(buffer->data, 0, bytes, stream_of(context)));
  return {};
}

// Slots start, and end, as no row. A search without ordering that meets a slot whose control byte
// is seen before its contents then finds nothing, and not a row that the key had before it was
// erased.
Status forget_slots(Context& context, const Buffer& slots) {
  SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(slots.data, 0xff, slots.bytes, stream_of(context)));
  return {};
}

// Copies a device counter to the host: a synchronisation.
Status read_counter(Context& context, const void* device, std::int64_t* value) {
  unsigned long long read = 0;
  SOK_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(&read, device, sizeof read, cudaMemcpyDeviceToHost, stream_of(context)));
  SOK_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_of(context)));
  *value = static_cast<std::int64_t>(read);
  return {};
}

}  // namespace

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

Status Table::initialize_static(Context& context) {
  return with_row_type(config_.row_type, [&](auto type) {
    using T = decltype(type);
    return launch(context, "initialize", initialize_kernel<T>,
                  config_.rows * ((config_.dimension + 3) / 4), kBlock, config_.initializer,
                  config_.id_offset, config_.id_stride, config_.rows, config_.dimension,
                  static_cast<T*>(planes_[0].pointers[0]));
  });
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

StateView Table::state(int i) const {
  const Plane& plane = planes_[i];
  return {static_cast<float*>(plane.pointers[0]),
          static_cast<float* const*>(plane.device_pointers.data), plane.spec.width,
          plane.spec.initial};
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

// Insertions do not count the deleted slots that they take: the kernels through which all ids pass
// would have to, for a number that matters only once the index seems to be full.
Status Table::count_deleted(Context& context) {
  if (deleted_ == 0) return {};
  Buffer counter;
  SOK_RETURN_IF_ERROR(zeroed(context, sizeof(unsigned long long), &counter));
  // Threads that have many words each add up their counts with few atomic operations.
  const std::int64_t threads = std::min<std::int64_t>(2 * std::int64_t{index_.groups}, 1 << 17);
  SOK_RETURN_IF_ERROR(launch(context, "count_deleted", count_deleted_kernel, threads, kBlock,
                             index_, counter.as<unsigned long long>()));
  return read_counter(context, counter.data, &deleted_);
}

Status Table::reserve_total(Context& context, std::int64_t rows) {
  if (config_.is_static()) return {};
  const std::int64_t most = config_.max_capacity > 0 ? config_.max_capacity : kMostRows;
  if (rows > most) return too_many_rows(config_.name, rows, most);
  SOK_RETURN_IF_ERROR(synchronise_counters(context));
  if (rows > limit_of(index_.groups)) SOK_RETURN_IF_ERROR(grow_index(context, rows));
  return grow_rows(context, rows);
}

Status Table::grow_index(Context& context, std::int64_t keys) {
  if (config_.max_capacity > 0) keys = std::min(keys, config_.max_capacity);
  const std::uint32_t groups = groups_for(std::max(keys, live_));
  const std::size_t control_bytes = std::size_t{groups} * kGroup;
  const std::size_t slot_bytes = std::size_t{groups} * kGroup * sizeof(Slot);
  Buffer control = context.allocate(control_bytes);
  Buffer slots = context.allocate(slot_bytes);
  if (control.data == nullptr || slots.data == nullptr) {
    return no_memory("the index", control_bytes + slot_bytes);
  }
  SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(control.data, static_cast<int>(kEmptyByte),
                                           control_bytes, stream_of(context)));
  SOK_RETURN_IF_ERROR(forget_slots(context, slots));
  IndexRef grown;
  grown.control = control.as<std::uint64_t>();
  grown.slots = slots.as<Slot>();
  grown.groups = groups;
  grown.hash_mask = config_.collide ? 0 : ~0ULL;
  SOK_RETURN_IF_ERROR(launch(context, "rebuild", rebuild_kernel, 2 * std::int64_t{index_.groups},
                             kBlock, index_, grown));
  if (control_.data != nullptr) ++growths_;
  index_ = grown;
  control_ = std::move(control);
  slots_ = std::move(slots);
  deleted_ = 0;
  view_is_current_ = false;
  return {};
}

Status Table::fill_initial(Context& context, const Plane& plane, std::size_t slab) {
  const std::int64_t count =
      static_cast<std::int64_t>(shape_.rows_in(static_cast<std::uint32_t>(slab))) *
      plane.spec.width;
  return launch(context, "fill", fill_kernel, count, kBlock,
                static_cast<float*>(plane.pointers[slab]), count, plane.spec.initial);
}

std::int64_t Table::slab_bytes(bool pinned) const {
  std::size_t total = 0;
  for (const Plane& plane : planes_) {
    for (const Buffer& slab : plane.slabs) total += slab.pinned == pinned ? slab.bytes : 0;
  }
  return static_cast<std::int64_t>(total);
}

Buffer Table::allocate_slab(Context& context, std::size_t bytes) {
  if (config_.device_bytes == TableConfig::kAllOnDevice) return context.allocate(bytes);
  const std::int64_t used = slab_bytes(false);
  if (static_cast<std::int64_t>(bytes) <= config_.device_bytes - used) {
    // Room for the next index must be left: it lies nowhere else.
    const Buffer next_index = context.allocate_at_once(2 * (control_.bytes + slots_.bytes));
    Buffer slab = context.allocate_at_once(bytes);
    if (next_index.data != nullptr && slab.data != nullptr) return slab;
    config_.device_bytes = used;  // what the device has left is for others: it is not asked again
  }
  return context.allocate_pinned(bytes);
}

Status Table::add_slab(Context& context, Plane* plane, std::size_t number) {
  const std::size_t bytes = shape_.rows_in(static_cast<std::uint32_t>(number)) *
                            static_cast<std::size_t>(plane->spec.width) * plane->element_bytes;
  Buffer slab = allocate_slab(context, bytes);
  if (slab.data == nullptr) return no_memory(plane->spec.name.c_str(), bytes);
  plane->pointers.push_back(slab.data);
  plane->slabs.push_back(std::move(slab));
  return {};
}

Status Table::publish_slabs(Context& context, Plane* plane) {
  view_is_current_ = false;
  return to_device(context, plane->pointers.data(), plane->pointers.size(),
                   &plane->device_pointers);
}

Status Table::grow_rows(Context& context, std::int64_t rows) {
  if (slab_rows_ >= rows) return {};
  while (slab_rows_ < rows) {
    for (Plane& plane : planes_) {
      if (plane.slabs.size() > slabs_) continue;
      SOK_RETURN_IF_ERROR(add_slab(context, &plane, slabs_));
    }
    // Before the slab counts: a table whose next slab finds no memory goes on with this one.
    for (Plane& plane : planes_) SOK_RETURN_IF_ERROR(publish_slabs(context, &plane));
    slab_rows_ += static_cast<std::int64_t>(shape_.rows_in(static_cast<std::uint32_t>(slabs_)));
    ++slabs_;
  }
  return {};
}

Status Table::size(Context& context, std::int64_t* rows) {
  if (!config_.is_static()) SOK_RETURN_IF_ERROR(synchronise_counters(context));
  *rows = config_.is_static() ? config_.rows : live_;
  return {};
}

Status Table::entries(Context& context, std::int64_t* count, Buffer* keys, Buffer* rows) {
  SOK_RETURN_IF_ERROR(size(context, count));
  *keys = context.allocate(std::max<std::int64_t>(1, *count) * sizeof(Key));
  *rows = context.allocate(std::max<std::int64_t>(1, *count) * sizeof(Row));
  if (keys->data == nullptr || rows->data == nullptr) {
    return no_memory("its list of keys", static_cast<std::size_t>(*count) * sizeof(Key));
  }
  if (config_.is_static()) {
    return launch(context, "static_entries", static_entries_kernel, *count, kBlock, *count,
                  keys->as<Key>(), rows->as<Row>());
  }
  Buffer cursor;
  SOK_RETURN_IF_ERROR(zeroed(context, sizeof(unsigned long long), &cursor));
  return launch(context, "entries", entries_kernel, 2 * std::int64_t{index_.groups}, kBlock, index_,
                cursor.as<unsigned long long>(), keys->as<Key>(), rows->as<Row>());
}

Status Table::erase(Context& context, const Key* keys, std::int64_t count, std::int64_t* erased) {
  SOK_RETURN_IF_ERROR(synchronise_counters(context));
  Buffer free_rows = context.allocate(std::max<std::int64_t>(1, free_ + count) * sizeof(Row));
  Buffer counter;
  if (free_rows.data == nullptr) {
    return no_memory("its list of free rows",
                     static_cast<std::size_t>(free_ + count) * sizeof(Row));
  }
  SOK_RETURN_IF_ERROR(zeroed(context, sizeof(unsigned long long), &counter));
  if (free_ > 0) {
    SOK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(free_rows.data, free_rows_.data, free_ * sizeof(Row),
                                             cudaMemcpyDeviceToDevice, stream_of(context)));
  }
  SOK_RETURN_IF_ERROR(launch(context, "erase", erase_kernel, count, kBlock, index_, keys, count,
                             free_rows.as<Row>() + free_, counter.as<unsigned long long>()));
  SOK_RETURN_IF_ERROR(read_counter(context, counter.data, erased));
  free_rows_ = std::move(free_rows);
  free_ += *erased;
  live_ -= *erased;
  deleted_ += *erased;
  total_erased_ += *erased;
  bound_ = live_;  // the counters were synchronised above
  view_is_current_ = false;
  return {};
}

Status Table::clear(Context& context) {
  if (config_.is_static()) {
    // The values stay; states start anew.
    for (std::size_t i = 1; i < planes_.size(); ++i) {
      for (std::size_t s = 0; s < slabs_; ++s) {
        SOK_RETURN_IF_ERROR(fill_initial(context, planes_[i], s));
      }
    }
    return {};
  }
  SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(control_.data, static_cast<int>(kEmptyByte),
                                           control_.bytes, stream_of(context)));
  SOK_RETURN_IF_ERROR(forget_slots(context, slots_));
  SOK_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(taken_.data, 0, sizeof(unsigned long long), stream_of(context)));
  live_ = free_ = next_ = deleted_ = bound_ = 0;
  settled_round_ = round_;
  pending_.clear();
  view_is_current_ = false;
  return {};
}

Status Table::stats(Context& context, std::vector<std::pair<std::string, std::int64_t>>* stats) {
  std::int64_t rows = 0, groups_read = 0;
  SOK_RETURN_IF_ERROR(size(context, &rows));
  if (!config_.is_static()) {
    SOK_RETURN_IF_ERROR(count_deleted(context));
    Buffer counter;
    SOK_RETURN_IF_ERROR(zeroed(context, sizeof(unsigned long long), &counter));
    SOK_RETURN_IF_ERROR(launch(context, "probe_length", probe_length_kernel,
                               2 * std::int64_t{index_.groups}, kBlock, index_,
                               counter.as<unsigned long long>()));
    SOK_RETURN_IF_ERROR(read_counter(context, counter.data, &groups_read));
  }
  *stats = {{"rows", rows},
            {"row_limit", row_limit()},
            {"index_slots", std::int64_t{index_.groups} * kGroup},
            {"deleted_slots", deleted_},
            {"groups_read_to_find_all", groups_read},
            {"bytes", bytes()},
            {"pinned_bytes", slab_bytes(true)},
            {"inserted", config_.is_static() ? 0 : live_ + total_erased_},
            {"erased", total_erased_},
            {"index_growths", growths_}};
  return {};
}

int Table::plane_index(const std::string& name) const {
  for (int i = 0; i < plane_count(); ++i) {
    if (planes_[i].spec.name == name) return i;
  }
  return -1;
}

Status Table::attach_planes(Context& context, const std::vector<PlaneSpec>& specs) {
  const std::size_t before = planes_.size();
  for (const PlaneSpec& spec : specs) {
    const Status status = attach_plane(context, spec);
    if (status.ok()) continue;
    planes_.resize(before);
    return status;
  }
  if (planes_.size() != before) view_is_current_ = false;
  return {};
}

Status Table::attach_plane(Context& context, const PlaneSpec& spec) {
  const int known = plane_index(spec.name);
  if (known >= 0) return check_width(config_.name, planes_[known].spec, spec);
  if (plane_count() > kMostPlanes) {
    return invalid_argument("table '", config_.name, "': more than ", kMostPlanes,
                            " optimizer states");
  }
  Plane& plane = planes_.emplace_back();
  plane.spec = spec;
  for (std::size_t s = 0; s < slabs_; ++s) {
    SOK_RETURN_IF_ERROR(add_slab(context, &plane, s));
    SOK_RETURN_IF_ERROR(fill_initial(context, plane, s));
  }
  return publish_slabs(context, &plane);
}

Status Table::row_tags(Context& context, std::uint32_t** tags) {
  const std::int64_t rows =
      std::max<std::int64_t>(1, config_.is_static() ? config_.rows : slab_rows_);
  if (tag_rows_ < rows) {
    Buffer grown;
    SOK_RETURN_IF_ERROR(
        zeroed(context, static_cast<std::size_t>(rows) * sizeof(std::uint32_t), &grown));
    tags_ = std::move(grown);
    tag_rows_ = rows;
  }
  *tags = tags_.as<std::uint32_t>();
  return {};
}

Status Table::zero_tags(Context& context) {
  SOK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(tags_.data, 0, tags_.bytes, stream_of(context)));
  return {};
}

}  // namespace sok::cuda
