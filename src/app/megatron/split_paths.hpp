#pragma once

#include <array>
#include <string>
#include <vector>

namespace trireme::app::megatron {

/// Texts for training, validation and test.
using PerSplit = std::array<std::vector<std::string>, 3>;

/// Returns the options for the weighted split paths of BLOOM and StarCoder. A group of corpora is "NAME: WEIGHT
/// START:END PATH, WEIGHT START:END PATH ...". Complete corpora become --train-data-path, --valid-data-path or
/// --valid-set, and --test-data-path. Contiguous parts of the same corpora become --data-path and --split, among the
/// words of training; further groups of validation, with its part, become --valid-set with --split-valid-sets. Throws
/// ConfigError with the nearest alternative for other parts, and for malformed groups.
PerSplit split_path_words(const PerSplit& groups);

/// Returns the groups in the text of a file, one line: "GROUP" "GROUP" ... Throws ConfigError for another text.
std::vector<std::string> split_path_groups(std::string text);

/// Returns the options of --per-split-data-args-path, of which `text` is the file. Throws DataError or ConfigError that
/// begins with `path`.
std::vector<std::string> words_of_splits(const std::string& text, const std::string& path);

}  // namespace trireme::app::megatron
