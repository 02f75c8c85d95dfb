#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/text/regex.hpp"
#include "src/data/tokenizer/precompiled_charsmap.hpp"

namespace trireme::data {

/// One change of a text before its words are found.
struct NormalizerStep {
  /// `strip_left` and `strip_right` remove white space at the ends of a text, `strip_marks` all marks (M), "accents".
  /// `precompiled` applies a `PrecompiledCharsmap`.
  enum class Kind {
    nfc,
    nfd,
    nfkc,
    nfkd,
    lower_case,
    prepend,
    replace,
    strip_left,
    strip_right,
    strip_marks,
    replace_matches,
    precompiled
  };
  Kind kind = Kind::nfc;
  std::string text =
      {};  ///< that `prepend` puts first, `replace` searches and `replace_matches` compiles; the charsmap
  std::string replacement = {};  ///< for `replace` and `replace_matches`, which takes it literally

  bool operator==(const NormalizerStep&) const = default;
};
inline constexpr int normalizer_step_count = 12;

/// Position of a stretch of text, on which what is put before it depends.
enum class TextStart {
  text,   ///< the beginning of a text
  part,   ///< after an added token
  inside  ///< behind a cut
};

/// Changes texts by several steps, in their order.
class Normalizer {
 public:
  /// Throws DataError if a step searches nothing, an expression is invalid, or the steps may make a text far longer.
  explicit Normalizer(std::vector<NormalizerStep> steps);

  const std::vector<NormalizerStep>& steps() const { return steps_; }
  /// Returns the changed text: `text` itself, or `space`. Behind a cut nothing is prepended or stripped at its front.
  std::string_view apply(std::string_view text, TextStart start, std::string& space) const;
  /// Returns whether a step prepends something.
  bool prepends() const;
  /// Returns whether the parts of a text that is cut before ASCII white space, and after another character, change as
  /// the full text does. A combination of characters may make this depend on the one before the cut.
  bool can_cut_after(char last) const;
  /// Returns whether each character changes by itself.
  bool is_by_character() const;

 private:
  std::string applied(const NormalizerStep& step, std::string_view text) const;

  std::vector<NormalizerStep> steps_;
  std::map<std::string, Regex> regexes_;                  // by expression
  std::map<std::string, PrecompiledCharsmap> charsmaps_;  // by content
};

}  // namespace trireme::data
