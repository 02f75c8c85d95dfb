#pragma once

#include <string>
#include <vector>

#include "src/app/options/options.hpp"

namespace trireme::app {

/// Options that name a tokenizer in Megatron-LM's terms. Corpora and checkpoints contain theirs, so the names and files
/// are only checked against it.
struct NamedTokenizer {
  std::string type = {}, vocabulary_file = {}, merge_file = {}, model = {};

  void declare(Options& options);
  /// Checks the options against the tokenizer `name` with `payload` in `holder`: "corpus a.h5". Throws DataError that
  /// names both if they differ. Returns a line for each option that could not be checked: a missing file, an unknown
  /// type, or a holder that has only ids.
  std::vector<std::string> compare(const std::string& holder, const std::string& name,
                                   const std::string& payload) const;

 private:
  void compare_type(const std::string& holder, const std::string& name, const std::string& payload,
                    std::vector<std::string>& lines) const;
  void compare_files(const std::string& holder, const std::string& name, const std::string& payload,
                     std::vector<std::string>& lines) const;
};

}  // namespace trireme::app
