#include "src/app/megatron/flag_table.hpp"

#include <algorithm>
#include <cctype>

namespace trireme::app::megatron {
namespace {

bool equal_without_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

const Flag* find_flag(std::string_view name, std::string_view value) {
  const Flag* of_prefix = nullptr;
  const Flag* found = nullptr;
  const Flag* of_value = nullptr;
  for_each_flag([&](const Flag& flag) {
    if (flag.name == name) found = &flag;
    if (flag.name.ends_with('*') && name.starts_with(flag.name.substr(0, flag.name.size() - 1))) of_prefix = &flag;
    const bool names_value =
        flag.name.size() > name.size() + 1 && flag.name.starts_with(name) && flag.name[name.size()] == ' ';
    if (names_value && equal_without_case(flag.name.substr(name.size() + 1), value)) of_value = &flag;
  });
  return of_value != nullptr ? of_value : found != nullptr ? found : of_prefix;
}

}  // namespace trireme::app::megatron
