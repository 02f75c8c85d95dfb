#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Detector of a text's languages, by CLD2 (Compact Language Detector 2). CLD2 is a naive Bayes classifier of the
/// n-grams of 83 languages, whose tables come with the library.
class LanguageDetector {
 public:
  /// Throws ConfigError for codes that CLD2 does not detect, EnvironmentError where the program was built without it.
  /// `wanted`: ISO 639 codes, "en", "zh-Hant".
  explicit LanguageDetector(std::vector<std::string> wanted);

  struct Result {
    std::string main;            ///< code of the language of most of the text; "un" (unknown) where none is sure
    double wanted_fraction = 0;  ///< fraction of the text's letters, in bytes, that are in the wanted languages
  };
  /// `text` is UTF-8. Safe to call from several threads at once.
  Result detect(std::string_view text) const;

 private:
  std::vector<std::string> wanted_;  // as CLD2 spells them
};

/// Returns whether this program was built with CLD2.
bool can_detect_languages();

}  // namespace trireme::data
