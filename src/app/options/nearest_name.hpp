#pragma once

#include <span>
#include <string>

namespace trireme::app {

/// Returns the candidate nearest to a misspelt or abbreviated `name`; empty if none is near.
std::string nearest_name(const std::string& name, std::span<const std::string> candidates);

/// Returns "; did you mean corpus build?", or nothing where no candidate is near.
std::string suggestion(const std::string& name, std::span<const std::string> candidates);

/// Throws ConfigError for the subcommand `word` of `parent`, which is empty or none of `words`; suggests the nearest.
[[noreturn]] void refuse_subcommand(const std::string& parent, const std::string& word,
                                    std::span<const std::string> words);

}  // namespace trireme::app
