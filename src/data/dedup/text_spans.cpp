#include "src/data/dedup/text_spans.hpp"

#include <algorithm>

#include "src/base/utf8.hpp"
#include "src/data/text/sentence_splitter.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

/// Returns whether datatrove takes `c` for punctuation; ASCII's `_` and controls are part of it.
bool is_ignored_sign(char32_t c) {
  constexpr std::u32string_view others = U"«´»–—’“”„…∶━►、。〈〉《》「」【】！％（），．：；？～";
  if (c < 0x80) return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) || c >= 0x7B;
  return c < 0xA0 || others.find(c) != others.npos;
}

bool is_digit(char32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : category_of(c) == UTF8PROC_CATEGORY_ND; }

/// Returns whether `c` divides a number into two: "1,200".
bool divides_numbers(char32_t c) {
  return std::u32string_view(U".,\u060C\u066B\u2396\u2397\u2398").find(c) != std::u32string_view::npos;
}

/// Writes characters as `simplified` compares them.
class Simplifier {
 public:
  void add(char32_t c) {
    if (is_digit(c)) {
      if (number_ == Number::none) write(U'0');
      number_ = divider_ != 0 ? Number::divided : std::max(number_, Number::whole);
      divider_ = 0;
    } else if (number_ == Number::whole && divider_ == 0 && divides_numbers(c)) {
      divider_ = c;
    } else {
      end_number();
      write(c);
    }
  }
  std::string take() {
    end_number();
    return std::move(text_);
  }

 private:
  enum class Number : std::uint8_t { none, whole, divided };

  void end_number() {
    if (divider_ != 0) write(divider_);
    divider_ = 0;
    number_ = Number::none;
  }
  void write(char32_t c) {
    if (c < ' ' || is_python_space(c) || is_ignored_sign(c)) {
      is_after_space_ = true;
      return;
    }
    if (is_after_space_ && !text_.empty()) text_ += ' ';
    is_after_space_ = false;
    append_utf8(c, text_);
  }

  std::string text_;
  Number number_ = Number::none;  // digits before the next character
  char32_t divider_ = 0;          // after them
  bool is_after_space_ = false;
};

std::string without_nonspacing_marks(std::string_view text) {
  std::string result;
  for_each_character(text, [&](Utf8Character c, std::string_view bytes) {
    if (category_of(c.code_point) != UTF8PROC_CATEGORY_MN) result += bytes;
  });
  return result;
}

}  // namespace

std::vector<std::string_view> text_parts(std::string_view text, TextPart part) {
  if (part == TextPart::lines) return lines_of(text);
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (const std::size_t end : sentence_ends(text)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return parts;
}

std::string simplified(std::string_view text) {
  Simplifier simplifier;
  if (ascii_size(text) == text.size()) {
    for (const char c : text) simplifier.add(static_cast<unsigned char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c));
    return simplifier.take();
  }
  const std::string lowered = lower_case(text);
  for_each_character(lowered, [&](Utf8Character c, std::string_view) { simplifier.add(c.code_point); });
  return std::string(stripped(without_nonspacing_marks(normal_form(simplifier.take(), NormalForm::nfd))));
}

std::vector<Hash128> span_hashes(std::string_view text, const SpanOptions& options) {
  std::vector<std::string> parts;
  for (const std::string_view part : text_parts(text, options.part)) parts.push_back(simplified(part));
  const auto size = static_cast<std::size_t>(options.size);
  std::vector<Hash128> hashes;
  std::string joined;
  for (std::size_t first = 0; first + size <= parts.size(); ++first) {
    joined.clear();
    for (std::size_t i = 0; i < size; ++i) (joined += parts[first + i]) += ' ';
    hashes.push_back(stripped(joined).empty() ? Hash128{} : hash128(joined.data(), joined.size()));
  }
  return hashes;
}

std::string without_spans(std::string_view text, const SpanOptions& options, std::span<const std::size_t> first_parts) {
  const std::vector<std::string_view> parts = text_parts(text, options.part);
  std::string rest;
  bool is_first = true;
  std::size_t end = 0;  // end of the removed parts
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!first_parts.empty() && first_parts.front() == i) {
      end = i + static_cast<std::size_t>(options.size);
      first_parts = first_parts.subspan(1);
    }
    if (i < end) continue;
    if (options.part == TextPart::lines && !is_first) rest += '\n';
    is_first = false;
    rest += parts[i];
  }
  const WordExtent words = word_extent(rest);
  return words.end == 0 ? "" : rest.substr(words.first_word);
}

}  // namespace trireme::data
