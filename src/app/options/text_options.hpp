#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "mpi/environment.hpp"
#include "src/app/options/options.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/prepare/text_reader.hpp"

namespace trireme::app {

/// Adds the option `name` for the format of documents.
void add_document_format(Options& options, const std::string& name, prepare::TextFormat* format,
                         const std::string& help);

/// Adds --input-format, for files that are not read line by line, and --json-key.
void add_text_format(Options& options, prepare::TextReaderOptions* reader);

/// Throws ConfigError if --json-key names several keys: a command that writes its documents needs one.
void check_one_key(const std::string& json_key);

/// Adds --on-bad-line and --max-bad-lines.
void add_bad_lines(Options& options, bool* skip, std::int64_t* max_lines);

void add_workers(Options& options, std::optional<int>* workers);

/// Returns the threads of a rank: `workers`, or its share of the machine's cores. Collective.
int thread_count(const mpi::MpiCommunicator& world, std::optional<int> workers);

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
