#include "src/data/text/language.hpp"

#ifdef TRIREME_HAS_CLD2
#include <cld2/public/encodings.h>

#include <cld2/public/compact_lang_det.h>
#endif

#include <algorithm>
#include <array>
#include <climits>
#include <utility>

#include "src/base/check.hpp"

namespace trireme::data {

#ifdef TRIREME_HAS_CLD2

LanguageDetector::LanguageDetector(std::vector<std::string> wanted) : wanted_(std::move(wanted)) {
  for (std::string& code : wanted_) {
    const CLD2::Language language = CLD2::GetLanguageFromName(code.c_str());
    TRIREME_CHECK(language != CLD2::UNKNOWN_LANGUAGE, ConfigError,
                  "<language> '{}' is not the ISO 639 code of a language that CLD2 detects. Try en, de, zh or zh-Hant",
                  code);
    code = CLD2::LanguageCode(language);
  }
}

LanguageDetector::Result LanguageDetector::detect(std::string_view text) const {
  std::array<CLD2::Language, 3> languages{};
  std::array<int, 3> percents{};
  std::array<double, 3> scores{};
  int text_bytes = 0;
  bool is_reliable = false;
  const CLD2::CLDHints no_hints{nullptr, nullptr, CLD2::UNKNOWN_ENCODING, CLD2::UNKNOWN_LANGUAGE};
  // Size limit for CLD2. Later text hardly changes the result.
  const int size = static_cast<int>(std::min<std::size_t>(text.size(), INT_MAX / 2));
  const CLD2::Language main =
      CLD2::ExtDetectLanguageSummary(text.data(), size, true, &no_hints, 0, languages.data(), percents.data(),
                                     scores.data(), nullptr, &text_bytes, &is_reliable);
  Result result{CLD2::LanguageCode(is_reliable ? main : CLD2::UNKNOWN_LANGUAGE), 0};
  for (std::size_t i = 0; i < languages.size(); ++i) {
    if (std::ranges::find(wanted_, CLD2::LanguageCode(languages[i])) == wanted_.end()) continue;
    result.wanted_fraction += percents[i] / 100.0;
  }
  return result;
}

bool can_detect_languages() { return true; }

#else

LanguageDetector::LanguageDetector(std::vector<std::string> wanted) : wanted_(std::move(wanted)) {
  throw EnvironmentError(
      "<language> needs CLD2, and this program was built without it. Install it (Debian: libcld2-dev) and build again");
}

LanguageDetector::Result LanguageDetector::detect(std::string_view) const { return {}; }

bool can_detect_languages() { return false; }

#endif

}  // namespace trireme::data
