#include "src/base/attributes.hpp"

#include <cmath>
#include <cstdint>

#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme {
namespace {

template <class Number>
std::string number_words() {
  return std::is_integral_v<Number> ? "a whole number" : "a finite number";
}

/// Returns whether all of `text` is one number.
template <class Number>
bool parse(const std::string& text, Number& value) {
  const auto number = parse_number<Number>(text);
  value = number.value_or(value);
  return number && std::isfinite(static_cast<double>(value));
}

}  // namespace

bool Attributes::contains_prefix(std::string_view prefix) const {
  const auto found = texts_.lower_bound(std::string(prefix));
  return found != texts_.end() && found->first.starts_with(prefix);
}

template <class T>
T Attributes::get(const std::string& name) const {
  const auto found = texts_.find(name);
  if constexpr (std::is_same_v<T, std::string>) {
    require(found != texts_.end(), name, "a text");
    return found->second;
  } else if constexpr (std::is_same_v<T, bool>) {
    require(found != texts_.end() && (found->second == "true" || found->second == "false"), name, "true or false");
    return found->second == "true";
  } else {
    T value{};
    require(found != texts_.end() && parse(found->second, value), name, number_words<T>());
    return value;
  }
}

template <class Number>
Number Attributes::get(const std::string& name, Number min) const {
  const auto found = texts_.find(name);
  Number value{};
  require(found != texts_.end() && parse(found->second, value) && value >= min, name,
          fmt::format("{} of at least {}", number_words<Number>(), min));
  return value;
}

template std::string Attributes::get(const std::string&) const;
template bool Attributes::get(const std::string&) const;
template int Attributes::get(const std::string&) const;
template std::int64_t Attributes::get(const std::string&) const;
template double Attributes::get(const std::string&) const;
template int Attributes::get(const std::string&, int) const;
template std::int64_t Attributes::get(const std::string&, std::int64_t) const;
template double Attributes::get(const std::string&, double) const;

void Attributes::fail(const std::string& problem) const {
  throw CheckpointError("{}: {}. Try another step, by its folder.", source_, problem);
}

void Attributes::reject(const std::string& name, const std::string& expected) const {
  const auto found = texts_.find(name);
  if (found == texts_.end()) fail(fmt::format("the attribute {} is missing; it should be {}", name, expected));
  fail(fmt::format("the attribute {} is '{}' instead of {}", name, shortened(found->second), expected));
}

}  // namespace trireme
