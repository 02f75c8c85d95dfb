#pragma once

#include <random>
#include <string>
#include <vector>

#include "src/base/hash.hpp"
#include "src/checkpoint/shard_plan.hpp"
#include "src/checkpoint/state.hpp"

namespace trireme::test {

using Random = std::mt19937_64;

inline std::int64_t random_below(Random& random, std::int64_t end) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
}

/// Bounds that divide [0, size) into at most `slices` pieces of any size, none of them empty; both ends included.
inline std::vector<std::int64_t> random_bounds(Random& random, std::int64_t size, std::int64_t slices) {
  std::vector<std::int64_t> bounds{0, size};
  for (std::int64_t i = 1; i < slices; ++i) bounds.push_back(random_below(random, size));
  std::ranges::sort(bounds);
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  return bounds;
}

/// Returns a random partition of a tensor. It is divided along at most two dimensions into boxes, and some boxes into
/// flat ranges that ignore rows.
inline std::vector<checkpoint::TensorSlice> random_partition(Random& random, const Shape& shape) {
  std::vector<Box> boxes{Box::whole(shape)};
  for (int round = 0; round < 2 && shape.rank() > 0; ++round) {
    const int dimension = static_cast<int>(random_below(random, shape.rank()));
    std::vector<Box> divided;
    for (const Box& box : boxes) {
      const auto bounds = random_bounds(random, box.extent[dimension], 1 + random_below(random, 4));
      for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
        Box slice = box;
        slice.offset[dimension] += bounds[i];
        slice.extent[dimension] = bounds[i + 1] - bounds[i];
        divided.push_back(slice);
      }
    }
    boxes = std::move(divided);
  }
  std::vector<checkpoint::TensorSlice> slices;
  for (const Box& box : boxes) {
    const auto bounds = random_bounds(random, box.numel(), random_below(random, 2) == 0 ? 1 : 5);
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) slices.push_back({box, bounds[i], bounds[i + 1] - bounds[i]});
  }
  return slices;
}

/// Index in the flattened tensor of element `position` of a slice, the slow and simple way.
inline std::int64_t naive_index(const Shape& shape, const checkpoint::TensorSlice& slice, std::int64_t position) {
  std::int64_t rest = slice.flat_begin + position;
  std::int64_t index = 0;
  std::int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    index += (slice.box.offset[i] + rest % slice.box.extent[i]) * stride;
    rest /= slice.box.extent[i];
    stride *= shape[i];
  }
  return index;
}

/// A tensor divided into slices that own their memory.
struct SlicedTensor {
  std::string name;
  Shape shape;
  std::vector<checkpoint::TensorSlice> slices;
  std::vector<std::vector<float>> data;

  SlicedTensor(std::string tensor_name, const Shape& tensor_shape, std::vector<checkpoint::TensorSlice> tensor_slices)
      : name(std::move(tensor_name)), shape(tensor_shape), slices(std::move(tensor_slices)) {
    for (const checkpoint::TensorSlice& slice : slices) data.emplace_back(static_cast<std::size_t>(slice.count), -1.f);
  }

  /// A unique number for each element of each tensor, different in every version.
  float value(std::int64_t index, std::uint64_t version) const {
    return static_cast<float>(splitmix64(fnv1a(name) + version, static_cast<std::uint64_t>(index)) >> 40);
  }
  void fill(std::uint64_t version) {
    for (std::size_t i = 0; i < slices.size(); ++i) {
      for (std::size_t j = 0; j < data[i].size(); ++j) {
        data[i][j] = value(naive_index(shape, slices[i], static_cast<std::int64_t>(j)), version);
      }
    }
  }
  bool holds(std::uint64_t version) const {
    SlicedTensor expected(name, shape, slices);
    expected.fill(version);
    return expected.data == data;
  }

  checkpoint::StateTensor state(std::size_t i) {
    return {name, shape, slices[i].box, slices[i].flat_begin, TensorView(data[i].data(), {slices[i].count}), true};
  }
  void add_states(std::vector<checkpoint::StateTensor>& states) {
    for (std::size_t i = 0; i < slices.size(); ++i) states.push_back(state(i));
  }
};

}  // namespace trireme::test
