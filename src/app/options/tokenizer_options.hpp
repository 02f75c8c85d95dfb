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
  /// Ids that come from elsewhere may be those of a tokenizer that is not known here.
  void declare(Options& options, Ids ids = Ids::from_text);
  /// Returns the tokenizer asked for. Throws ConfigError if they contradict one another, DataError or IoError if
  /// the files are not what they should be.
  std::unique_ptr<data::Tokenizer> make() const;
};

}  // namespace trireme::app
