#include "src/app/options/number_list.hpp"

#include <charconv>

#include "src/base/check.hpp"

namespace trireme::app {

std::vector<std::int64_t> number_list(const std::string& flag, const std::vector<std::string>& words,
                                      std::int64_t least) {
  std::vector<std::int64_t> numbers;
  for (const std::string& word : words) {
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, numbers.emplace_back());
    TRIREME_CHECK(error == std::errc() && stop == end && numbers.back() >= least, ConfigError,
                  "{} '{}' is not a whole number of at least {}", flag, word, least);
  }
  return numbers;
}

}  // namespace trireme::app
