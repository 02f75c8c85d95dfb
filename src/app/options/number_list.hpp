#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::app {

/// Returns the whole numbers, each at least `least`, in the words that `flag` was given. Throws ConfigError for others.
std::vector<std::int64_t> number_list(const std::string& flag, const std::vector<std::string>& words,
                                      std::int64_t least);

}  // namespace trireme::app
