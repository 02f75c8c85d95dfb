#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Detector of a text's languages, by CLD2 (Compact Language Detector 2). CLD2 is a naive Bayes classifier of the
/// n-grams of 83 languages, with built-in tables.
class LanguageDetector {
 public:
  /// Throws ConfigError for codes that CLD2 does not detect, EnvironmentError if the program was built without it.
  /// `wanted`: ISO 639 codes, "en", "zh-Hant".
  explicit LanguageDetector(std::vector<std::string> wanted);

  struct Result {
    std::string main;            ///< code of the predominant language; "un" (unknown) if none is certain
    double wanted_fraction = 0;  ///< fraction of the text's letters, in bytes, that are in the wanted languages
  };
  /// `text` is UTF-8. Thread-safe.
  Result detect(std::string_view text) const;

 private:
  std::vector<std::string> wanted_;  // in CLD2's spelling
};

/// Returns whether this program was built with CLD2.
bool can_detect_languages();

}  // namespace trireme::data
