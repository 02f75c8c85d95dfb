#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/quality/blocklist.hpp"
#include "src/data/quality/classifier.hpp"
#include "src/data/quality/quality_rules.hpp"
#include "src/data/quality/title_list.hpp"
#include "src/data/text/language.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::prepare {

/// Members of a document beside its text, if it has them.
struct DocumentNames {
  std::optional<std::string> url, title;
};

/// Decisions on single documents, in the order of the members; null or empty: no such decision.
struct DocumentFilters {
  std::shared_ptr<const data::UrlBlocklist> blocked_urls;
  std::shared_ptr<const data::TitleList> blocked_titles;
  std::shared_ptr<const data::QualityFilters> quality;
  std::shared_ptr<const data::WordBlocklist> blocked_words;
  std::shared_ptr<const data::Tokenizer> tokenizer;  ///< for `min_tokens`
  std::int64_t min_tokens = 0;
  std::shared_ptr<const data::LanguageDetector> languages;
  double min_language_fraction = 0.5;  ///< fraction of a document in these languages
  std::shared_ptr<const data::TextClassifier> classifier;
  bool keeps_class = true;  ///< documents of the classifier's labels are kept; otherwise they are removed

  /// Returns why a document is removed, as members of JSON without the name of the first, `"short","tokens":4`; empty
  /// if it stays. Quality filters may change `text`. Thread-safe.
  std::string reason_to_go(std::string& text, const DocumentNames& names) const;
};

}  // namespace trireme::prepare
