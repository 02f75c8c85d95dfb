#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "src/app/options/options.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::app {

/// Options of the commands that turn text into tokens.
struct TokenizerOptions {
  std::string tokenizer = "gpt2";
  std::string vocabulary_file, merge_file, model_file, end_of_document;
  bool cased = false;
  std::optional<std::int64_t> max_word_characters;
  std::optional<std::int64_t> vocabulary_size, end_of_document_id;

  enum class Ids { from_text, from_elsewhere };
  /// Ids from elsewhere may be those of an unknown tokenizer.
  void declare(Options& options, Ids ids = Ids::from_text);
  /// Returns the requested tokenizer. Throws ConfigError if the options contradict each other, DataError or IoError if
  /// the files are wrong.
  std::unique_ptr<data::Tokenizer> make() const;
};

}  // namespace trireme::app
