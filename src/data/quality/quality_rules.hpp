#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Rules on single documents with the bounds of their publications. Lengths are in characters, shares in 0 to 1; words
/// are those of `separated_words`.

/// Rae et al., "Scaling Language Models: Methods, Analysis & Insights from Training Gopher", arXiv:2112.11446, A.1.1.
struct GopherQualityBounds {
  double min_words = 50;  ///< words that are not punctuation alone, as in the next three
  double max_words = 100000;
  double min_word_length = 3;  ///< mean
  double max_word_length = 10;
  double max_hashes = 0.1;            ///< "#" for each word
  double max_ellipses = 0.1;          ///< "..." and U+2026 for each word
  double max_bullet_lines = 0.9;      ///< share of lines that begin with U+2022 or "-"
  double max_ellipsis_lines = 0.3;    ///< share of lines that end with an ellipsis
  double min_alphabetic_words = 0.8;  ///< share of words with a letter
  double min_stop_words = 2;          ///< different ones of: the be to of and that have with
};

/// Table A1 there: shares of the text's characters, unless they are shares of lines or paragraphs. Repeated: equal to
/// an earlier one.
struct GopherRepetitionBounds {
  double repeated_paragraphs = 0.3, repeated_paragraph_characters = 0.2;
  double repeated_lines = 0.3, repeated_line_characters = 0.2;
  double top_2_grams = 0.2, top_3_grams = 0.18, top_4_grams = 0.16;  ///< occurrences of the most frequent one
  double repeated_5_grams = 0.15, repeated_6_grams = 0.14, repeated_7_grams = 0.13, repeated_8_grams = 0.12,
         repeated_9_grams = 0.11, repeated_10_grams = 0.1;  ///< that do not overlap
};

/// Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", JMLR 21 (2020)
/// 140, section 2.2. Lines are removed that do not end with . ? ! " or ', or end with "...", have fewer words than
/// `min_line_words` or a longer one than `max_word_length`, or speak of JavaScript, cookies or terms of use. Citations
/// like [2] and [edit] are removed.
struct C4Bounds {
  double min_sentences = 5;
  double min_line_words = 3;  ///< between white space, as in the next one
  double max_word_length = 1000;
};

/// Xue et al., "mT5", arXiv:2010.11934, section 3.1: lines of at least `min_length`.
struct C4ParagraphBounds {
  double min_paragraphs = 3, min_length = 200;
};

/// Penedo et al., "The FineWeb Datasets", arXiv:2406.17557, section 3.6.
struct FineWebBounds {
  double min_punctuated_lines = 0.12;  ///< share of lines that end a sentence; empty lines never count
  double max_short_lines = 0.67;       ///< share of lines of at most `short_line` characters
  double short_line = 30;
  double repeated_line_characters = 0.01;
  double max_newlines = 0.3;  ///< for each word
};

/// A rule that a document breaks, "gopher-quality.min-words", and the value found.
struct BrokenRule {
  std::string_view rule;
  double value;
};

/// Filters of published corpora, by name:
///
/// | name | source |
/// | --- | --- |
/// | gopher-quality, gopher-repetition | `GopherQualityBounds`, `GopherRepetitionBounds` |
/// | c4 | `C4Bounds`; also removes documents with a curly bracket or "lorem ipsum" |
/// | c4-paragraphs | `C4ParagraphBounds` |
/// | fineweb | `FineWebBounds` |
class QualityFilters {
 public:
  /// Applies `filters` in this order; `bounds` replace published ones: "gopher-quality.min-words=30". Throws
  /// ConfigError for unknown names, values that are not numbers, and bounds of filters that are absent.
  QualityFilters(std::span<const std::string_view> filters, std::span<const std::string_view> bounds);

  /// Returns the first rule that `text` breaks. The filter c4 removes lines and citations from it. Thread-safe.
  std::optional<BrokenRule> apply(std::string& text) const;

  /// Names of all filters.
  static std::vector<std::string_view> names();

 private:
  enum class Filter { gopher_quality, gopher_repetition, c4, c4_paragraphs, fineweb };
  struct Named;
  static std::span<const Named> table();
  struct NamedBound;
  std::vector<NamedBound> named_bounds();
  std::vector<Filter> filters_;
  GopherQualityBounds gopher_quality_;
  GopherRepetitionBounds gopher_repetition_;
  C4Bounds c4_;
  C4ParagraphBounds c4_paragraphs_;
  FineWebBounds fineweb_;
};

/// The filters, one by one.
std::optional<BrokenRule> gopher_quality(std::string_view text, const GopherQualityBounds& bounds);
std::optional<BrokenRule> gopher_repetition(std::string_view text, const GopherRepetitionBounds& bounds);
std::optional<BrokenRule> c4(std::string& text, const C4Bounds& bounds);
std::optional<BrokenRule> c4_paragraphs(std::string_view text, const C4ParagraphBounds& bounds);
std::optional<BrokenRule> fineweb(std::string_view text, const FineWebBounds& bounds);

}  // namespace trireme::data
