#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>

namespace trireme::data {

/// Strings that may be looked up by a view.
struct TextHash : std::hash<std::string_view> {
  using is_transparent = void;
};
using TextSet = std::unordered_set<std::string, TextHash, std::equal_to<>>;

/// Addresses whose documents are removed.
class UrlBlocklist {
 public:
  /// `lines`: one entry on each line, without white space at its ends; empty ones and those that begin with # do not
  /// count. An entry without a path is a domain, and stands for its subdomains; another one is a complete address, with
  /// or without its scheme and "www.".
  explicit UrlBlocklist(std::string_view lines);

  /// Returns whether the address, or the domain of its host or one above, is in the list. Case of the host does not
  /// matter.
  bool contains(std::string_view url) const;

 private:
  TextSet domains_, addresses_;
};

/// Words and phrases whose documents are removed, as in C4 (see `C4Bounds`).
class WordBlocklist {
 public:
  /// `lines` as above: one word or phrase on each. Case does not matter.
  explicit WordBlocklist(std::string_view lines);

  /// Returns the first entry in `text` that has no letter, digit or underscore before or after it; empty if none.
  std::string find(std::string_view text) const;

 private:
  TextSet phrases_;
  std::set<std::size_t> sizes_;  // bytes of the phrases
};

}  // namespace trireme::data
