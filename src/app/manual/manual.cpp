#include "src/app/manual/manual.hpp"

#include <algorithm>
#include <cctype>

namespace trireme::app {

std::vector<std::string> OptionManual::words() const {
  std::vector<std::string> words;
  const bool lists_words = placeholder.find('|') != std::string::npos &&
                           std::ranges::none_of(placeholder, [](unsigned char c) { return std::isupper(c) != 0; });
  for (std::size_t begin = 0; lists_words && begin <= placeholder.size();) {
    const std::size_t end = std::min(placeholder.find('|', begin), placeholder.size());
    words.push_back(placeholder.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

const CommandManual* ProgramManual::find(std::string_view path) const {
  const auto found = std::ranges::find(commands, path, &CommandManual::path);
  return found == commands.end() ? nullptr : &*found;
}

}  // namespace trireme::app
