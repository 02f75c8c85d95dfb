#include "src/tensor/memory.hpp"

#include <algorithm>

namespace trireme {

TensorView Arena::allocate(DType dtype, const Shape& shape) {
  constexpr std::size_t alignment = 64;
  const std::size_t wanted = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  const std::size_t size_bytes = std::max(alignment, (wanted + alignment - 1) / alignment * alignment);
  std::byte* data = size_bytes <= block_bytes_ / 4 ? take(small_, position_.small, size_bytes, block_bytes_)
                    : growth_ == Growth::replace   ? take_next(size_bytes)
                                                   : take(large_, position_.large, size_bytes, size_bytes);
  position_.total += size_bytes;
  peak_bytes_ = std::max(peak_bytes_, position_.total);
  return {data, dtype, shape};
}

std::byte* Arena::take(Blocks& blocks, Mark::Position& position, std::size_t size_bytes, std::size_t new_block_bytes) {
  Mark::Position next = position;
  while (next.block < blocks.size() && next.used + size_bytes > blocks[next.block].memory.size_bytes()) {
    blocks[next.block].used = next.used;
    ++next.block;
    next.used = 0;
  }
  if (next.block == blocks.size()) blocks.push_back({allocator_->allocate(new_block_bytes)});
  std::byte* data = blocks[next.block].memory.data() + next.used;
  next.used += size_bytes;
  position = next;
  return data;
}

std::byte* Arena::take_next(std::size_t size_bytes) {
  Mark::Position next = position_.large;
  if (next.used > 0) {
    large_[next.block++].used = next.used;
    next.used = 0;
  }
  if (next.block == large_.size()) {
    large_.push_back({allocator_->allocate(size_bytes)});
  } else if (Buffer& memory = large_[next.block].memory; memory.size_bytes() < size_bytes) {
    constexpr std::size_t spare = 8;  // a part more: sizes that vary replace it seldom
    memory = {};                      // first: both may not fit
    memory = allocator_->allocate(size_bytes + size_bytes / spare);
  }
  next.used = size_bytes;
  position_.large = next;
  return large_[next.block].memory.data();
}

std::size_t Arena::reserved_bytes() const {
  std::size_t sum = 0;
  for (const Blocks* blocks : {&small_, &large_}) {
    for (const Block& block : *blocks) sum += block.memory.size_bytes();
  }
  return sum;
}

std::vector<TensorView> Arena::used_ranges() const {
  std::vector<TensorView> ranges;
  const auto add = [&](const Blocks& blocks, const Mark::Position& position) {
    for (std::size_t i = 0; i < blocks.size() && i <= position.block; ++i) {
      const std::size_t used = i < position.block ? blocks[i].used : position.used;
      if (used > 0) ranges.emplace_back(blocks[i].memory.data(), DType::uint8, Shape{static_cast<std::int64_t>(used)});
    }
  };
  add(small_, position_.small);
  add(large_, position_.large);
  return ranges;
}

}  // namespace trireme
