#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::app {

/// A corpus and its weight, by default the number of its tokens times `epochs`.
struct WeightedPath {
  std::string path;
  std::optional<double> weight = {};
  double epochs = 1;
  bool operator==(const WeightedPath&) const = default;
};

/// Corpora that training reads from a point on.
struct BlendFileStage {
  enum class Unit { samples, steps, tokens };
  std::int64_t begin = 0;
  Unit unit = Unit::samples;
  std::vector<WeightedPath> corpora;
  bool operator==(const BlendFileStage&) const = default;
};

/// Reads the text of a --blend file: a line "CORPUS", "WEIGHT CORPUS" or "N epochs CORPUS" for each corpus, and before
/// those of a later stage a line "from step N", "from sample N" or "from token N", N with or without K, M, B or T.
/// Lines that begin with # are comments. Throws DataError, which names `path` and the line, for another line, a stage
/// with weights for only some of its corpora, or with a corpus twice, or without any.
std::vector<BlendFileStage> parse_blend(std::string_view text, const std::string& path);

}  // namespace trireme::app
