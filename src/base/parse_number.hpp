#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace trireme {

/// Takes the number that `text` begins with from it: digits with a minus if any, and those of a real number, without
/// blanks or a plus before it, whatever the locale. Empty where no number begins, or where it does not fit into T; then
/// `text` stays.
template <class T>
std::optional<T> take_number(std::string_view& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// Returns the number that all of `text` is: see `take_number`.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  const std::optional<T> value = take_number<T>(text);
  return text.empty() ? value : std::nullopt;
}

}  // namespace trireme
