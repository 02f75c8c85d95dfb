#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/data/tokenizer/tokenizer.hpp"
#include "src/infer/generation.hpp"

namespace trireme::app {

/// Texts of continuations: decodes their tokens, and ends them before the first of the stops.
class ContinuationText {
 public:
  /// The arguments must live longer.
  ContinuationText(const data::Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : tokenizer_(tokenizer), stops_(stops) {}

  std::string decode(std::span<const std::int32_t> tokens) const;
  /// Returns whether the text of `tokens` contains a stop.
  bool stops(std::span<const std::int32_t> tokens) const;
  /// Returns the bytes of an unfinished text that no further token changes: complete characters of UTF-8, before a stop
  /// or what may begin one.
  std::size_t settled_bytes(const std::string& text) const;
  /// Cuts a finished continuation before its first stop. Returns its text, which is that of its tokens. If the stop
  /// begins inside a token, the rest before it becomes new tokens, whose log-probability is NaN.
  std::string finish(infer::Continuation& continuation) const;

 private:
  /// Position of the first stop in `text`; npos if there is none.
  std::size_t first_stop(const std::string& text) const;

  const data::Tokenizer& tokenizer_;
  const std::vector<std::string>& stops_;
};

}  // namespace trireme::app
