#include "src/checkpoint/shard_plan.hpp"

#include <algorithm>
#include <optional>

namespace trireme::checkpoint {
namespace {

/// Strides of a row-major array of these extents.
Shape strides_of(const Shape& extents) {
  Shape strides = extents;
  std::int64_t stride = 1;
  for (int i = extents.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= extents[i];
  }
  return strides;
}

/// Divides a slice into boxes of the tensor, at most 2 x rank - 1 of them, in order. At each position the box takes the
/// slowest dimension whose rows begin there and fit.
std::vector<Box> slabs_of(const TensorSlice& slice) {
  std::vector<Box> slabs;
  const int rank = slice.box.extent.rank();
  const Shape strides = strides_of(slice.box.extent);
  const std::int64_t end = slice.flat_begin + slice.count;
  for (std::int64_t position = slice.flat_begin; position < end;) {
    Box slab = slice.box;
    std::int64_t count = 0;
    for (int i = 0; i < rank; ++i) {
      if (count > 0) continue;  // within complete rows: the box's own offset and extent
      const std::int64_t coordinate = position / strides[i] % slice.box.extent[i];
      slab.offset[i] += coordinate;
      slab.extent[i] = 1;
      if (position % strides[i] == 0 && end - position >= strides[i]) {
        slab.extent[i] = std::min((end - position) / strides[i], slice.box.extent[i] - coordinate);
        count = slab.extent[i] * strides[i];
      }
    }
    slabs.push_back(slab);
    position += rank == 0 ? 1 : count;
  }
  return slabs;
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box common = a;
  for (int i = 0; i < a.offset.rank(); ++i) {
    common.offset[i] = std::max(a.offset[i], b.offset[i]);
    common.extent[i] = std::min(a.offset[i] + a.extent[i], b.offset[i] + b.extent[i]) - common.offset[i];
    if (common.extent[i] <= 0) return std::nullopt;
  }
  return common;
}

/// Position of a tensor's element among those of a slice.
std::int64_t position_in(const TensorSlice& slice, const Shape& strides, const Shape& coordinates) {
  std::int64_t position = -slice.flat_begin;
  for (int i = 0; i < coordinates.rank(); ++i) position += (coordinates[i] - slice.box.offset[i]) * strides[i];
  return position;
}

/// Index in the full, flattened tensor of element `position` of a slice.
std::int64_t index_in_tensor(const Shape& shape, const TensorSlice& slice, std::int64_t position) {
  const Shape tensor_strides = strides_of(shape);
  const Shape box_strides = strides_of(slice.box.extent);
  std::int64_t index = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    const std::int64_t coordinate = (slice.flat_begin + position) / box_strides[i] % slice.box.extent[i];
    index += (slice.box.offset[i] + coordinate) * tensor_strides[i];
  }
  return index;
}

}  // namespace

std::string slice_problem(const Shape& shape, const TensorSlice& slice) {
  const int rank = shape.rank();
  const auto description = [&] {
    return fmt::format("elements {} to {} of the box {} at {}", slice.flat_begin, slice.flat_begin + slice.count,
                       to_string(slice.box.extent), to_string(slice.box.offset));
  };
  if (slice.box.offset.rank() != rank || slice.box.extent.rank() != rank) return "the box has another rank";
  std::int64_t size_bytes = 8;
  for (int i = 0; i < rank; ++i) {
    if (shape[i] < 0 || __builtin_mul_overflow(size_bytes, std::max<std::int64_t>(shape[i], 1), &size_bytes)) {
      return "the size of a tensor " + to_string(shape) + " overflows 64 bits";
    }
    if (slice.box.extent[i] < 0 || slice.box.offset[i] < 0 || slice.box.extent[i] > shape[i] ||
        slice.box.offset[i] > shape[i] - slice.box.extent[i]) {
      return description() + " are not inside the tensor " + to_string(shape);
    }
  }
  const std::int64_t box_numel = slice.box.numel();
  if (slice.flat_begin < 0 || slice.count < 0 || slice.flat_begin > box_numel ||
      slice.count > box_numel - slice.flat_begin) {
    return description() + " are not inside the box";
  }
  return {};
}

void for_each_common_range(const TensorSlice& source, const TensorSlice& target,
                           const std::function<void(const ElementRange&)>& visit) {
  const int rank = source.box.offset.rank();
  const Shape source_strides = strides_of(source.box.extent);
  const Shape target_strides = strides_of(target.box.extent);
  const std::vector<Box> target_slabs = slabs_of(target);

  ElementRange pending;
  const auto add = [&](const ElementRange& range) {
    if (pending.count > 0 && range.from == pending.from + pending.count && range.to == pending.to + pending.count) {
      pending.count += range.count;
      return;
    }
    if (pending.count > 0) visit(pending);
    pending = range;
  };

  // Row-major order is the lexicographic order of coordinates in any box. Slabs, and rows in them, thus occur in the
  // same order in both slices.
  for (const Box& source_slab : slabs_of(source)) {
    for (const Box& target_slab : target_slabs) {
      const std::optional<Box> common = intersection(source_slab, target_slab);
      if (!common) continue;
      // Dimensions after `last` are complete in both boxes: rows of `last` are contiguous.
      int last = rank - 1;
      std::int64_t range_count = rank == 0 ? 1 : common->extent[last];
      while (last > 0 && common->extent[last] == source.box.extent[last] &&
             common->extent[last] == target.box.extent[last]) {
        range_count *= common->extent[--last];
      }
      Shape coordinates = common->offset;
      for (bool more = true; more;) {
        add({position_in(source, source_strides, coordinates), position_in(target, target_strides, coordinates),
             range_count});
        more = false;
        for (int i = last - 1; i >= 0 && !more; --i) {
          more = ++coordinates[i] < common->offset[i] + common->extent[i];
          if (!more) coordinates[i] = common->offset[i];
        }
      }
    }
  }
  if (pending.count > 0) visit(pending);
}

std::string coverage_problem(const Shape& shape, std::span<const TensorSlice> slices) {
  struct Item {
    std::int64_t first;  // indices in the full tensor
    std::int64_t last;
    std::vector<Box> slabs;
  };
  std::vector<Item> items;
  std::int64_t covered = 0;
  for (const TensorSlice& slice : slices) {
    if (slice.count == 0) continue;
    items.push_back(
        {index_in_tensor(shape, slice, 0), index_in_tensor(shape, slice, slice.count - 1), slabs_of(slice)});
    covered += slice.count;
  }
  // Only slices whose ranges of indices overlap can have common elements: a sweep over the tensor compares few of them.
  std::ranges::sort(items, {}, &Item::first);
  std::vector<const Item*> active;
  for (const Item& item : items) {
    std::erase_if(active, [&](const Item* other) { return other->last < item.first; });
    for (const Item* other : active) {
      for (const Box& a : item.slabs) {
        for (const Box& b : other->slabs) {
          if (const std::optional<Box> common = intersection(a, b)) {
            return "the elements " + to_string(common->extent) + " at " + to_string(common->offset) +
                   " are there twice";
          }
        }
      }
    }
    active.push_back(&item);
  }
  if (covered != shape.numel()) {
    return fmt::format("{} of its {} elements are missing", shape.numel() - covered, shape.numel());
  }
  return {};
}

}  // namespace trireme::checkpoint
