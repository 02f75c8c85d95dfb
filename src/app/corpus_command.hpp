#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/data/tokenizer.hpp"

namespace trireme::app {

/// `trireme corpus build|inspect|verify|...`; `arguments` are those after "corpus". Returns the exit code; errors are
/// thrown.
int corpus_command(const std::vector<std::string>& arguments);

/// The tokenizer that --tokenizer, --vocab-file and --merge-file name. Throws ConfigError, DataError, IoError.
std::unique_ptr<data::Tokenizer> make_tokenizer(const std::string& name, const std::string& vocabulary_file,
                                                const std::string& merge_file);

}  // namespace trireme::app
