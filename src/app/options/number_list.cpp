#include "src/app/options/number_list.hpp"

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"

namespace trireme::app {

std::vector<std::int64_t> number_list(const std::string& flag, const std::vector<std::string>& words,
                                      std::int64_t least) {
  std::vector<std::int64_t> numbers;
  for (const std::string& word : words) {
    const auto number = parse_number<std::int64_t>(word);
    TRIREME_CHECK(number && *number >= least, ConfigError, "{} '{}' is not a whole number of at least {}", flag, word,
                  least);
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace trireme::app
