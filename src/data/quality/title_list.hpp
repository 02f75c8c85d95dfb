#pragma once

#include <string>
#include <string_view>

#include "src/data/quality/blocklist.hpp"

namespace trireme::data {

/// Titles of articles, such as those of a test set that are removed from a training corpus.
class TitleList {
 public:
  /// `lines`: a title on each line; or WikiText, whose articles begin with " = Title = " between empty lines.
  /// WikiText's signs are those of its raw files: " @-@ " is a hyphen. DataError if a title of WikiText has `<unk>`.
  explicit TitleList(std::string_view lines);

  std::size_t size() const { return titles_.size(); }
  /// Returns whether the list has the title. White space, underscores and the form of accents do not matter; case does.
  bool contains(std::string_view title) const;

 private:
  TextSet titles_;
};

}  // namespace trireme::data
