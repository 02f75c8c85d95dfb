#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// One change of a text before its words are found.
struct NormalizerStep {
  enum class Kind { nfc, nfd, nfkc, nfkd, lower_case, prepend, replace };
  Kind kind = Kind::nfc;
  std::string text = {};         ///< that `prepend` puts first and `replace` searches
  std::string replacement = {};  ///< for `replace`

  bool operator==(const NormalizerStep&) const = default;
};
inline constexpr int normalizer_step_count = 7;

/// Position of a stretch of text, on which what is put before it depends.
enum class TextStart {
  text,   ///< the beginning of a text
  part,   ///< after an added token
  inside  ///< behind a cut
};

/// Changes texts by several steps, in their order.
class Normalizer {
 public:
  /// Throws DataError if a step searches nothing, or if the steps may make a text far longer.
  explicit Normalizer(std::vector<NormalizerStep> steps);

  const std::vector<NormalizerStep>& steps() const { return steps_; }
  /// Returns the changed text: `text` itself, or `space`. Behind a cut nothing is prepended.
  std::string_view apply(std::string_view text, TextStart start, std::string& space) const;
  /// Returns whether a step prepends something.
  bool prepends() const;
  /// Returns whether the parts of a text that is cut before ASCII white space, and after another character, change as
  /// the full text does. A combination of characters may make this depend on the one before the cut.
  bool can_cut_after(char last) const;
  /// Returns whether each character changes by itself.
  bool is_by_character() const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace trireme::data
