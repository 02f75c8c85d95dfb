#include "src/data/quality/separated_words.hpp"

#include <algorithm>
#include <array>

#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

constexpr bool is_ascii_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_letter_or_digit(char32_t c) { return (c >= '0' && c <= '9') || is_letter(c); }

/// Punctuation and symbols but those of options, paths, formulas and programming languages (-x, /tmp, x=, C++).
bool is_sign(char32_t c) {
  if (c < 0x80) {
    constexpr std::u32string_view signs = U"!\"#$%&'()*,.:;<>?[]_`{}";
    return signs.find(c) != signs.npos;
  }
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_SO;
}

Utf8Character first_of(std::string_view text) { return decode_utf8(text.data(), text.data() + text.size()); }

std::size_t last_begin(std::string_view text) { return character_begin(text, text.size() - 1); }

constexpr std::array titles{"Mr.",  "Mrs.", "Ms.",   "Dr.",  "St.",  "Prof.", "Jr.",   "Sr.",  "vs.",  "Co.",
                            "Inc.", "Ltd.", "Corp.", "Gen.", "Gov.", "Sen.",  "Rep.",  "Rev.", "Jan.", "Feb.",
                            "Mar.", "Apr.", "Jun.",  "Jul.", "Aug.", "Sep.",  "Sept.", "Oct.", "Nov.", "Dec."};

/// Returns whether the full stop at the end of `word` belongs to it.
bool keeps_full_stop(std::string_view word) {
  const std::string_view before = word.substr(0, word.size() - 1);
  if (before.size() == 1 && before[0] >= 'A' && before[0] <= 'Z') return true;
  const std::size_t point = before.find('.');
  if (point != std::string_view::npos && point > 0 && !before.ends_with('.')) {
    return std::ranges::all_of(before,
                               [](char c) { return c == '.' || is_ascii_letter(static_cast<unsigned char>(c)); });
  }
  return std::ranges::find(titles, word) != titles.end();
}

/// Returns the byte at which an ending like 's begins; the size of the word if it has none.
std::size_t ending_begin(std::string_view word) {
  if (word == "cannot" || word == "Cannot") return 3;
  for (const std::string_view apostrophe : {"'", "\u2019"}) {
    const std::size_t at = word.rfind(apostrophe);
    if (at == std::string_view::npos || at == 0) continue;
    const std::string_view tail = word.substr(at + apostrophe.size());
    constexpr std::array tails{"s", "S", "re", "ve", "ll", "d", "m", "RE", "VE", "LL", "D", "M"};
    if (std::ranges::find(tails, tail) != tails.end()) return at;
    if ((tail == "t" || tail == "T") && at > 1 && (word[at - 1] == 'n' || word[at - 1] == 'N')) return at - 1;
  }
  return word.size();
}

/// Splits one chunk between white space.
class Chunk {
 public:
  Chunk(std::string_view chunk, std::vector<std::string_view>& words) : rest_(chunk), words_(words) {}

  void split() {
    while (!rest_.empty() && is_sign(first_of(rest_).code_point)) take_front();
    std::vector<std::string_view> ends;  // last first
    while (!rest_.empty()) {
      const std::size_t at = last_begin(rest_), ending = ending_begin(rest_);
      if (ending < rest_.size()) {
        ends.push_back(rest_.substr(ending));
        rest_ = rest_.substr(0, ending);
      } else if (is_sign(first_of(rest_.substr(at)).code_point) && !(rest_[at] == '.' && keeps_full_stop(rest_))) {
        const std::size_t begin = rest_[at] == '.' ? rest_.find_last_not_of('.') + 1 : at;
        ends.push_back(rest_.substr(begin));
        rest_ = rest_.substr(0, begin);
      } else {
        break;
      }
    }
    split_middle();
    words_.insert(words_.end(), ends.rbegin(), ends.rend());
  }

 private:
  void take_front() {
    const std::size_t size = rest_[0] == '.' ? std::min(rest_.find_first_not_of('.'), rest_.size())
                                             : static_cast<std::size_t>(first_of(rest_).size_bytes);
    words_.push_back(rest_.substr(0, size));
    rest_.remove_prefix(size);
  }

  void split_middle() {
    const bool is_address = rest_.find("://") != std::string_view::npos || rest_.starts_with("www.") ||
                            rest_.find('@') != std::string_view::npos;
    std::size_t begin = 0;
    char32_t before = 0;
    for (std::size_t at = 0; at < rest_.size() && !is_address;) {
      const Utf8Character c = first_of(rest_.substr(at));
      std::size_t next = at + static_cast<std::size_t>(std::max(c.size_bytes, 1));
      if (c.code_point == '-') next = std::min(rest_.find_first_not_of('-', at), rest_.size());
      const char32_t after = next < rest_.size() ? first_of(rest_.substr(next)).code_point : 0;
      if (at > begin && separates(before, c.code_point, after)) {
        words_.push_back(rest_.substr(begin, at - begin));
        words_.push_back(rest_.substr(at, next - at));
        begin = next;
      }
      before = c.code_point;
      at = next;
    }
    if (begin < rest_.size()) words_.push_back(rest_.substr(begin));
  }

  static bool separates(char32_t before, char32_t sign, char32_t after) {
    switch (sign) {
      case '-':
      case 0x2013:
      case 0x2014:
      case '~':
      case ':':
      case '<':
      case '>':
      case '=':
      case '/':
        return is_letter_or_digit(before) && is_letter(after);
      case ',':
        return is_letter(before) && is_letter(after);
      case '.':
        return before >= 'a' && before <= 'z' && after >= 'A' && after <= 'Z';
      default:
        return false;
    }
  }

  std::string_view rest_;
  std::vector<std::string_view>& words_;
};

}  // namespace

void separated_words(std::string_view text, std::vector<std::string_view>& words) {
  const char *const end = text.data() + text.size(), *begin = nullptr;
  const auto close = [&](const char* at) {
    if (begin != nullptr) Chunk({begin, static_cast<std::size_t>(at - begin)}, words).split();
    begin = nullptr;
  };
  for_each_character(text, [&](Utf8Character c, std::string_view bytes) {
    if (c.size_bytes != 0 && is_python_space(c.code_point)) {
      close(bytes.data());
    } else if (begin == nullptr) {
      begin = bytes.data();
    }
  });
  close(end);
}

}  // namespace trireme::data
