#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct re_pattern_buffer;

namespace trireme::data {

/// Regular expression of Oniguruma in its syntax "Ruby", which `tokenizers` uses. Threads may share it.
class Regex {
 public:
  struct Match {
    std::size_t begin, end;  ///< bytes
  };

  /// Throws DataError if the expression is invalid.
  explicit Regex(std::string_view expression);

  /// Returns the matches in `text` from left to right. No empty one begins where another match ends. A byte that is not
  /// UTF-8 counts as the control character U+001A. Throws DataError if Oniguruma gives up after too many steps back.
  std::vector<Match> matches(std::string_view text) const;

 private:
  struct Free {
    void operator()(re_pattern_buffer* compiled) const;
  };

  std::string expression_;
  std::unique_ptr<re_pattern_buffer, Free> compiled_;
};

/// Returns an expression that matches `text` alone.
std::string regex_of_text(std::string_view text);

}  // namespace trireme::data
