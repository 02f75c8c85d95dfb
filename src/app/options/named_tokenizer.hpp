#pragma once

#include <string>
#include <vector>

#include "src/app/options/options.hpp"

namespace trireme::app {

/// Options that name a tokenizer in Megatron-LM's words. Corpora and checkpoints hold theirs, so that the names and
/// files are only compared with it.
struct NamedTokenizer {
  std::string type = {}, vocabulary_file = {}, merge_file = {}, model = {};

  void declare(Options& options);
  /// Compares the options with the tokenizer `name`, of this payload, that `holder` holds: "corpus a.h5". Throws
  /// DataError that names both where they differ. Returns a line for options that could not be compared: a file that is
  /// not there, a type that is not known here, or a holder that has ids alone.
  std::vector<std::string> compare(const std::string& holder, const std::string& name,
                                   const std::string& payload) const;

 private:
  void compare_type(const std::string& holder, const std::string& name, const std::string& payload,
                    std::vector<std::string>& lines) const;
  void compare_files(const std::string& holder, const std::string& name, const std::string& payload,
                     std::vector<std::string>& lines) const;
};

}  // namespace trireme::app
