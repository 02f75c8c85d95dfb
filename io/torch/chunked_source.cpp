#include "io/torch/chunked_source.hpp"

#include <algorithm>
#include <cstring>
#include <ranges>

#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::io {
namespace {

bool overlap(const Box& a, const Box& b) {
  for (int i = 0; i < a.extent.rank(); ++i) {
    if (a.offset[i] >= b.offset[i] + b.extent[i] || b.offset[i] >= a.offset[i] + a.extent[i]) return false;
  }
  return true;
}

bool lies_in(const Box& box, const Shape& shape) {
  if (box.offset.rank() != shape.rank() || box.extent.rank() != shape.rank()) return false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (box.offset[i] < 0 || box.extent[i] < 1 || box.extent[i] > shape[i] ||
        box.offset[i] > shape[i] - box.extent[i]) {
      return false;
    }
  }
  return true;
}

/// Elements of a box that are contiguous in the tensor: `count` runs of `length`.
struct Runs {
  Runs(const Box& box, const Shape& shape) : box_(box), shape_(shape) {
    int inner = shape.rank() - 1;
    while (inner > 0 && box.extent[inner] == shape[inner]) --inner;
    for (int i = std::max(inner, 0); i < shape.rank(); ++i) length *= box.extent[i];
    for (int i = 0; i < inner; ++i) count *= box.extent[i];
    outer_ = std::max(inner, 0);
  }
  /// Returns the offset of run `index` in the tensor.
  std::int64_t place(std::int64_t index) const {
    std::int64_t place = 0, stride = 1;
    for (int i = shape_.rank() - 1; i >= 0; --i) {
      std::int64_t at = box_.offset[i];
      if (i < outer_) {
        at += index % box_.extent[i];
        index /= box_.extent[i];
      }
      place += at * stride;
      stride *= shape_[i];
    }
    return place;
  }
  std::int64_t length = 1, count = 1;

 private:
  const Box& box_;
  const Shape& shape_;
  int outer_ = 0;
};

}  // namespace

void ChunkedSource::add(exchange::ForeignTensor tensor, std::vector<TensorChunk> chunks) {
  const std::string name = shortened(tensor.name);
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
  std::vector<TensorChunk> kept;
  std::int64_t covered = 0;
  for (const TensorChunk& chunk : chunks) {
    TRIREME_CHECK(lies_in(chunk.box, tensor.shape), DataError,
                  "{}: a part of {} lies beyond the tensor's sizes {}: the checkpoint is damaged", description_, name,
                  to_string(tensor.shape));
    TRIREME_CHECK(chunk.box.numel() * size == static_cast<std::int64_t>(chunk.bytes.size()), DataError,
                  "{}: a part {} of {} has {} bytes: the checkpoint is damaged", description_,
                  to_string(chunk.box.extent), name, chunk.bytes.size());
    if (std::ranges::find(kept, chunk.box, &TensorChunk::box) != kept.end()) continue;
    const bool clear =
        std::ranges::none_of(kept, [&](const TensorChunk& other) { return overlap(chunk.box, other.box); });
    TRIREME_CHECK(clear, DataError, "{}: parts of {} overlap: the checkpoint is damaged", description_, name);
    covered += chunk.box.numel();
    kept.push_back(chunk);
  }
  TRIREME_CHECK(covered == tensor.shape.numel(), DataError,
                "{}: the parts of {} have {} of {} elements: parts are missing", description_, name, covered,
                tensor.shape.numel());
  tensors_.push_back(std::move(tensor));
  chunks_.push_back(std::move(kept));
}

void ChunkedSource::read(std::size_t tensor, std::int64_t first, std::span<std::byte> out) {
  const auto size = static_cast<std::int64_t>(size_of(tensors_[tensor].dtype));
  const std::int64_t end = first + static_cast<std::int64_t>(out.size()) / size;
  for (const TensorChunk& chunk : chunks_[tensor]) {
    const Runs runs(chunk.box, tensors_[tensor].shape);
    // Run offsets are ascending.
    const auto indices = std::views::iota(std::int64_t{0}, runs.count);
    const auto begin = std::ranges::partition_point(
        indices, [&](std::int64_t index) { return runs.place(index) + runs.length <= first; });
    for (auto run = begin; run != indices.end(); ++run) {
      const std::int64_t place = runs.place(*run);
      if (place >= end) break;
      chunk.storage->check();
      const std::int64_t from = std::max(place, first), to = std::min(place + runs.length, end);
      std::memcpy(out.data() + (from - first) * size, chunk.bytes.data() + (*run * runs.length + from - place) * size,
                  static_cast<std::size_t>((to - from) * size));
    }
  }
}

}  // namespace trireme::io
