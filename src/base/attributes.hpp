#pragma once

#include <cstddef>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "src/base/check.hpp"

namespace trireme {

/// A value of an enumeration and its name.
template <class Enum>
struct Choice {
  std::string_view name;
  Enum value;
};

/// Named values of a checkpoint besides its tensors, stored as text. Each type has its codec next to it:
/// `attributes_of` and its inverse. They live in the lowest folder so that all of those types may include it.
///
/// `get` throws CheckpointError if a value is missing or malformed, with source, name, value and expectation.
class Attributes {
 public:
  using Texts = std::map<std::string, std::string>;

  Attributes() = default;
  Attributes(std::initializer_list<Texts::value_type> texts) : texts_(texts) {}
  explicit Attributes(Texts texts) : texts_(std::move(texts)) {}

  /// Sets the file that the values come from, for messages.
  void set_source(std::string source) { source_ = std::move(source); }

  const Texts& texts() const& { return texts_; }
  Texts texts() && { return std::move(texts_); }
  bool contains(const std::string& name) const { return texts_.contains(name); }
  /// Returns whether any name begins with `prefix`.
  bool contains_prefix(std::string_view prefix) const;
  /// Compares the values, ignoring the source.
  friend bool operator==(const Attributes& a, const Attributes& b) { return a.texts_ == b.texts_; }

  /// Sets a value, replacing any earlier one. Floating-point numbers have 17 digits, which read back exactly.
  void put(const std::string& name, std::string_view text) { texts_.insert_or_assign(name, std::string(text)); }
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void put(const std::string& name, Number value) {
    if constexpr (std::is_same_v<Number, bool>) {
      put(name, value ? "true" : "false");
    } else if constexpr (std::is_floating_point_v<Number>) {
      put(name, fmt::format("{:.17g}", value));
    } else {
      put(name, fmt::format("{}", value));
    }
  }
  template <class Enum, std::size_t count>
  void put(const std::string& name, Enum value, const Choice<Enum> (&choices)[count]) {
    for (const Choice<Enum>& choice : choices) {
      if (choice.value == value) return put(name, choice.name);
    }
    fail(fmt::format("the attribute {} has no name for its value", name));
  }
  /// Sets the shortest number that reads back exactly: for options, which are logged as given.
  void put_shortest(const std::string& name, double value) { put(name, fmt::format("{}", value)); }
  /// Adds the values of `other` with new names.
  void merge(const Attributes& other) { texts_.insert(other.texts_.begin(), other.texts_.end()); }

  /// T is std::string, bool ("true" or "false"), int, std::int64_t, or double, which must be finite.
  template <class T>
  T get(const std::string& name) const;
  /// A number that is at least `min`.
  template <class Number>
  Number get(const std::string& name, Number min) const;
  template <class Enum, std::size_t count>
  Enum get(const std::string& name, const Choice<Enum> (&choices)[count]) const {
    const auto found = texts_.find(name);
    std::string names;
    for (const Choice<Enum>& choice : choices) {
      if (found != texts_.end() && choice.name == found->second) return choice.value;
      names += (names.empty() ? "" : ", ") + std::string(choice.name);
    }
    reject(name, "one of " + names);
  }

  /// Throws CheckpointError unless `holds`. `expected` completes "the attribute is '3' instead of ...".
  void require(bool holds, const std::string& name, const std::string& expected) const {
    if (!holds) reject(name, expected);
  }
  /// Throws CheckpointError with the source and `problem`.
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  [[noreturn]] void reject(const std::string& name, const std::string& expected) const;

  Texts texts_;
  std::string source_ = "the checkpoint";
};

}  // namespace trireme
