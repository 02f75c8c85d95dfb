#include "src/data/quality/quality_rules.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::data {

struct QualityFilters::Named {
  std::string_view name;
  Filter filter;
};

struct QualityFilters::NamedBound {
  std::string_view name;
  double* value;
};

std::span<const QualityFilters::Named> QualityFilters::table() {
  static constexpr std::array all{Named{"gopher-quality", Filter::gopher_quality},
                                  Named{"gopher-repetition", Filter::gopher_repetition}, Named{"c4", Filter::c4},
                                  Named{"c4-paragraphs", Filter::c4_paragraphs}, Named{"fineweb", Filter::fineweb}};
  return all;
}

std::vector<std::string_view> QualityFilters::names() {
  std::vector<std::string_view> names;
  for (const Named& named : table()) names.push_back(named.name);
  return names;
}

std::vector<QualityFilters::NamedBound> QualityFilters::named_bounds() {
  GopherQualityBounds& g = gopher_quality_;
  GopherRepetitionBounds& r = gopher_repetition_;
  FineWebBounds& f = fineweb_;
  return {{"gopher-quality.min-words", &g.min_words},
          {"gopher-quality.max-words", &g.max_words},
          {"gopher-quality.min-word-length", &g.min_word_length},
          {"gopher-quality.max-word-length", &g.max_word_length},
          {"gopher-quality.max-hashes", &g.max_hashes},
          {"gopher-quality.max-ellipses", &g.max_ellipses},
          {"gopher-quality.max-bullet-lines", &g.max_bullet_lines},
          {"gopher-quality.max-ellipsis-lines", &g.max_ellipsis_lines},
          {"gopher-quality.min-alphabetic-words", &g.min_alphabetic_words},
          {"gopher-quality.min-stop-words", &g.min_stop_words},
          {"gopher-repetition.paragraphs", &r.repeated_paragraphs},
          {"gopher-repetition.paragraph-characters", &r.repeated_paragraph_characters},
          {"gopher-repetition.lines", &r.repeated_lines},
          {"gopher-repetition.line-characters", &r.repeated_line_characters},
          {"gopher-repetition.top-2-grams", &r.top_2_grams},
          {"gopher-repetition.top-3-grams", &r.top_3_grams},
          {"gopher-repetition.top-4-grams", &r.top_4_grams},
          {"gopher-repetition.5-grams", &r.repeated_5_grams},
          {"gopher-repetition.6-grams", &r.repeated_6_grams},
          {"gopher-repetition.7-grams", &r.repeated_7_grams},
          {"gopher-repetition.8-grams", &r.repeated_8_grams},
          {"gopher-repetition.9-grams", &r.repeated_9_grams},
          {"gopher-repetition.10-grams", &r.repeated_10_grams},
          {"c4.min-sentences", &c4_.min_sentences},
          {"c4.min-line-words", &c4_.min_line_words},
          {"c4.max-word-length", &c4_.max_word_length},
          {"c4-paragraphs.min-paragraphs", &c4_paragraphs_.min_paragraphs},
          {"c4-paragraphs.min-length", &c4_paragraphs_.min_length},
          {"fineweb.min-punctuated-lines", &f.min_punctuated_lines},
          {"fineweb.max-short-lines", &f.max_short_lines},
          {"fineweb.short-line", &f.short_line},
          {"fineweb.line-characters", &f.repeated_line_characters},
          {"fineweb.max-newlines", &f.max_newlines}};
}

QualityFilters::QualityFilters(std::span<const std::string_view> filters, std::span<const std::string_view> bounds) {
  for (const std::string_view name : filters) {
    const auto found = std::ranges::find(table(), name, &Named::name);
    TRIREME_CHECK(found != table().end(), ConfigError, "there is no quality filter '{}': give some of {}",
                  shortened(name), fmt::join(names(), ", "));
    filters_.push_back(found->filter);
  }
  const std::vector<NamedBound> known = named_bounds();
  for (const std::string_view bound : bounds) {
    const std::size_t sign = std::min(bound.find('='), bound.size());
    const std::string_view name = bound.substr(0, sign), filter = name.substr(0, name.find('.'));
    const auto found = std::ranges::find(known, name, &NamedBound::name);
    if (found == known.end()) {
      std::vector<std::string_view> near;
      for (const NamedBound& other : known) {
        if (other.name.starts_with(filter) && other.name.substr(0, other.name.find('.')) == filter)
          near.push_back(other.name);
      }
      throw ConfigError(fmt::format("there is no bound '{}' of a quality filter: {}", shortened(name),
                                    near.empty() ? fmt::format("names begin with {}", fmt::join(names(), ", "))
                                                 : fmt::format("{} has {}", filter, fmt::join(near, ", "))));
    }
    TRIREME_CHECK(std::ranges::find(filters, filter) != filters.end(), ConfigError,
                  "the bound {} needs the quality filter {}", name, filter);
    const std::string_view text = bound.substr(std::min(sign + 1, bound.size()));
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *found->value);
    TRIREME_CHECK(error == std::errc() && end == text.data() + text.size() && std::isfinite(*found->value), ConfigError,
                  "the bound '{}' has no number: give {}=NUMBER", shortened(bound), name);
  }
}

std::optional<BrokenRule> QualityFilters::apply(std::string& text) const {
  for (const Filter filter : filters_) {
    std::optional<BrokenRule> broken;
    switch (filter) {
      case Filter::gopher_quality:
        broken = gopher_quality(text, gopher_quality_);
        break;
      case Filter::gopher_repetition:
        broken = gopher_repetition(text, gopher_repetition_);
        break;
      case Filter::c4:
        broken = c4(text, c4_);
        break;
      case Filter::c4_paragraphs:
        broken = c4_paragraphs(text, c4_paragraphs_);
        break;
      case Filter::fineweb:
        broken = fineweb(text, fineweb_);
        break;
    }
    if (broken) return broken;
  }
  return std::nullopt;
}

}  // namespace trireme::data
