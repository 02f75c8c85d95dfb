#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "src/exchange/import.hpp"

namespace trireme::test {

/// Elements of a parameter, read in about two slices, as two ranks would read them.
inline std::vector<std::byte> read_in_halves(exchange::ParameterReader& reader,
                                             const exchange::MappedParameter& parameter, DType dtype) {
  const std::size_t all = static_cast<std::size_t>(parameter.shape.numel()) * size_of(dtype);
  const std::size_t row = all / static_cast<std::size_t>(parameter.rows());
  std::vector<std::byte> whole(all), part;
  for (const exchange::ParameterSlice& slice :
       reader.slices_of(parameter, dtype, static_cast<std::int64_t>((all + 1) / 2))) {
    reader.read(slice, dtype, part);
    if (!slice.of_columns) {
      std::memcpy(whole.data() + static_cast<std::size_t>(slice.first) * row, part.data(), part.size());
      continue;
    }
    const std::size_t width = static_cast<std::size_t>(slice.count) * size_of(dtype);
    for (std::size_t i = 0; i < part.size() / width; ++i) {
      std::memcpy(whole.data() + i * row + static_cast<std::size_t>(slice.first) * size_of(dtype),
                  part.data() + i * width, width);
    }
  }
  return whole;
}

/// Returns the log-probabilities of rows of `v` logits.
inline std::vector<double> log_softmax(std::vector<double> logits, std::size_t v) {
  for (std::size_t row = 0; row < logits.size(); row += v) {
    double maximum = logits[row], sum = 0;
    for (std::size_t i = 0; i < v; ++i) maximum = std::max(maximum, logits[row + i]);
    for (std::size_t i = 0; i < v; ++i) sum += std::exp(logits[row + i] - maximum);
    for (std::size_t i = 0; i < v; ++i) logits[row + i] -= maximum + std::log(sum);
  }
  return logits;
}

}  // namespace trireme::test
