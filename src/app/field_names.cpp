#include "src/app/options/field_names.hpp"

#include <algorithm>
#include <functional>
#include <set>

#include "src/app/command_table.hpp"

namespace trireme::app {
namespace {

/// Returns whether a command of the program has the option `flag`.
bool is_option(std::string_view flag) {
  static const std::set<std::string, std::less<>> flags = [] {
    std::set<std::string, std::less<>> names;
    for (const CommandManual& command : program_manual().commands) {
      for (const OptionManual& option : command.options) names.insert(option.names.begin(), option.names.end());
    }
    return names;
  }();
  return flags.contains(flag);
}

std::string replaced(std::string_view text, bool (*is_flag)(std::string_view)) {
  std::string result;
  for (;;) {
    const std::size_t open = text.find('<');
    result += text.substr(0, open);
    if (open == std::string_view::npos) return result;
    text.remove_prefix(open + 1);
    const std::size_t close = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_");
    std::string flag(text.substr(0, close));
    std::ranges::replace(flag, '_', '-');
    if (close == std::string_view::npos || text[close] != '>' || !is_flag(flag)) {
      result += '<';
    } else {
      result += "--" + flag;
      text.remove_prefix(close + 1);
    }
  }
}

}  // namespace

std::string with_flags(std::string_view text) { return replaced(text, is_option); }

std::string with_own_flags(std::string_view text) {
  return replaced(text, [](std::string_view) { return true; });
}

}  // namespace trireme::app
