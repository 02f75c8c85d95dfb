#include "src/data/template/lexer.hpp"

#include <algorithm>
#include <array>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/utf8.hpp"
#include "src/data/template/text_functions.hpp"
#include "src/data/text/unicode.hpp"

namespace trireme::data::jinja {
namespace {

/// Returns the text with line feeds as line ends, and without the last of them.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    text += source[i] == '\r' ? '\n' : source[i];
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c < 0; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)) {}

  std::vector<Token> run() {
    if (const std::size_t at = find_invalid_utf8(source_); at != source_.size()) {
      refuse(1 + static_cast<int>(std::count(source_.begin(), source_.begin() + static_cast<std::ptrdiff_t>(at), '\n')),
             "the text is not UTF-8");
    }
    while (at_ < source_.size()) read_data();
    add(Token::Type::end, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool follows(std::string_view text) const { return rest().starts_with(text); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  void add(Token::Type type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }
  /// Moves on by `size` bytes.
  std::string_view take(std::size_t size) {
    const std::string_view taken = rest().substr(0, size);
    line_ += static_cast<int>(std::ranges::count(taken, '\n'));
    at_ += taken.size();
    return taken;
  }
  void take_space() {
    while (const std::size_t size = space_bytes(source_, at_)) take(size);
  }

  /// Reads text up to the next tag, and that tag.
  void read_data() {
    std::size_t begin = at_;
    do {
      begin = source_.find('{', begin);
      if (begin == source_.npos) return add_data(take(source_.npos));
    } while (std::string_view("{%#").find(begin + 1 < source_.size() ? source_[begin + 1] : ' ') ==
                 std::string_view::npos &&
             ++begin > 0);
    std::string_view text = std::string_view(source_).substr(at_, begin - at_);
    const char kind = source_[begin + 1];
    const char sign = begin + 2 < source_.size() ? source_[begin + 2] : ' ';
    if (sign == '-') {
      text = stripped(text, Side::right);
    } else if (sign != '+' && kind != '{') {
      const std::size_t line_begin = text.rfind('\n') + 1;  // 0 if there is none
      const bool starts_line = line_begin > 0 || at_ == 0 || source_[at_ - 1] == '\n';
      if (starts_line && stripped(text.substr(line_begin), Side::left).empty()) text = text.substr(0, line_begin);
    }
    if (!text.empty()) add_data(text);
    take(begin - at_);
    take(2);
    if (sign == '-' || sign == '+') take(1);
    if (kind == '#') {
      read_comment();
    } else {
      read_tag(kind == '{');
    }
  }

  void add_data(std::string_view text) { add(Token::Type::data, std::string(text)); }

  /// Takes what belongs to the end of a tag: white space after "-", otherwise one line feed unless "+" stands there.
  void finish_tag(char sign, bool trims) {
    if (sign == '-') {
      take_space();
    } else if (sign != '+' && trims && peek() == '\n') {
      take(1);
    }
  }

  void read_comment() {
    const int line = line_;
    const std::size_t end = source_.find("#}", at_);
    if (end == source_.npos) refuse(line, "Missing end of comment tag");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    take(end - at_ + 2);
    finish_tag(sign, true);
  }

  void read_tag(bool prints) {
    const std::size_t first = tokens_.size();
    add(prints ? Token::Type::print_begin : Token::Type::tag_begin, prints ? "{{" : "{%");
    const std::string_view end = prints ? "}}" : "%}";
    std::string open;  // brackets that are not closed yet
    while (true) {
      take_space();
      if (open.empty()) {
        const char sign = peek() == '-' || (peek() == '+' && !prints) ? peek() : ' ';
        if (std::string_view(source_).substr(std::min(at_ + (sign == ' ' ? 0 : 1), source_.size())).starts_with(end)) {
          take(sign == ' ' ? 2 : 3);
          const bool is_raw = !prints && tokens_.size() == first + 2 && tokens_.back().text == "raw" &&
                              tokens_.back().type == Token::Type::name;
          add(prints ? Token::Type::print_end : Token::Type::tag_end, std::string(end));
          if (is_raw) return read_raw(first, sign);
          return finish_tag(sign, !prints);
        }
      }
      if (at_ == source_.size()) refuse(line_, "unexpected end of template inside a tag");
      read_token(open);
    }
  }

  /// Replaces the tag `raw` by the text up to `endraw`.
  void read_raw(std::size_t first, char sign) {
    const int line = tokens_[first].line;
    tokens_.resize(first);
    if (sign == '-') take_space();
    for (std::size_t begin = source_.find("{%", at_); begin != source_.npos; begin = source_.find("{%", begin + 1)) {
      std::size_t at = begin + 2;
      const char left = at < source_.size() ? source_[at] : ' ';
      if (left == '-' || left == '+') ++at;
      while (const std::size_t size = space_bytes(source_, at)) at += size;
      if (source_.compare(at, 6, "endraw") != 0) continue;
      at += 6;
      while (const std::size_t size = space_bytes(source_, at)) at += size;
      const char right = at < source_.size() ? source_[at] : ' ';
      if (right == '-' || right == '+') ++at;
      if (source_.compare(at, 2, "%}") != 0) continue;
      std::string_view text = rest().substr(0, begin - at_);
      if (left == '-') text = stripped(text, Side::right);
      if (!text.empty()) add_data(text);
      take(at + 2 - at_);
      return finish_tag(right, true);
    }
    refuse(line, "Missing end of raw directive");
  }

  void read_token(std::string& open) {
    const char c = peek();
    if (begins_name(c)) {
      std::size_t size = 1;
      while (begins_name(peek(size)) || is_digit(peek(size))) ++size;
      const std::string name(rest().substr(0, size));
      add(Token::Type::name, name);
      take(size);
    } else if (is_digit(c)) {
      read_number();
    } else if (c == '\'' || c == '"') {
      read_text(c);
    } else {
      read_sign(open);
    }
  }

  /// Takes digits, which underscores may separate.
  std::string digits() {
    std::string result;
    while (is_digit(peek()) || (peek() == '_' && is_digit(peek(1)))) {
      if (is_digit(peek())) result += peek();
      take(1);
    }
    return result;
  }

  void read_number() {
    const bool follows_dot = !tokens_.empty() && at_ > 0 && source_[at_ - 1] == '.';
    std::string text = digits();
    bool is_integer = true;
    if (!follows_dot && peek() == '.' && is_digit(peek(1))) {
      take(1);
      text += '.' + digits();
      is_integer = false;
    }
    const std::size_t sign = peek(1) == '+' || peek(1) == '-' ? 1 : 0;
    if (!follows_dot && (peek() == 'e' || peek() == 'E') && is_digit(peek(1 + sign))) {
      text += 'e';
      text += take(1 + sign).substr(1);
      text += digits();
      is_integer = false;
    }
    if (is_integer && text.size() > 1 && text[0] == '0' && text.find_first_not_of('0') != text.npos) {
      refuse(line_, "the integer " + text + " begins with 0");
    }
    add(is_integer ? Token::Type::integer : Token::Type::number, text);
  }

  void read_text(char quote) {
    const int line = line_;
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) refuse(line, "a text has no closing quote");
    tokens_.push_back({Token::Type::text, unescaped(rest().substr(1, end - at_ - 1)), line});
    take(end + 1 - at_);
  }

  /// Returns a literal's text as Python reads it.
  std::string unescaped(std::string_view text) const {
    constexpr std::string_view letters = "ntr\\'\"abfv", values = "\n\t\r\\'\"\a\b\f\v";
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        result += text[i];
        continue;
      }
      const char c = text[++i];
      if (const std::size_t at = letters.find(c); at != letters.npos) {
        result += values[at];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t size = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        result += character(text.substr(i + 1, size), size, 16);
        i += size;
      } else if (c >= '0' && c <= '7') {
        std::size_t size = 1;
        while (size < 3 && i + size < text.size() && text[i + size] >= '0' && text[i + size] <= '7') ++size;
        result += character(text.substr(i, size), size, 8);
        i += size - 1;
      } else if (c == 'N') {
        refuse(line_, "the escape \\N is not supported in a text: write the character");
      } else if (c != '\n') {
        result += '\\';
        result += c;
      }
    }
    return result;
  }

  std::string character(std::string_view digits, std::size_t size, std::uint32_t base) const {
    std::uint32_t code = 0;
    bool is_good = digits.size() == size;
    for (const char digit : digits) {
      const std::size_t value = std::string_view("0123456789abcdef")
                                    .find(static_cast<char>(digit >= 'A' && digit <= 'F' ? digit + 32 : digit));
      is_good = is_good && value < base;
      code = code * base + static_cast<std::uint32_t>(value);
    }
    if (!is_good || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      refuse(line_, "a text has an escape that is no character");
    }
    std::string result;
    append_utf8(code, result);
    return result;
  }

  void read_sign(std::string& open) {
    constexpr std::array<std::string_view, 26> signs{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                     "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                     ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* const found = std::ranges::find_if(signs, [&](std::string_view sign) { return follows(sign); });
    if (found == signs.end()) {
      const std::size_t size = skip_characters(source_, at_, 1) - at_;
      refuse(line_, fmt::format("unexpected char '{}'", rest().substr(0, size)));
    }
    const std::string sign(*found);
    constexpr std::string_view opening = "([{", closing = ")]}";
    if (const std::size_t kind = closing.find(sign[0]); kind != closing.npos) {
      if (open.empty()) refuse(line_, "unexpected '" + sign + "'");
      if (open.back() != opening[kind]) {
        refuse(line_, fmt::format("unexpected '{}', expected '{}'", sign, closing[opening.find(open.back())]));
      }
      open.pop_back();
    } else if (opening.find(sign[0]) != opening.npos) {
      open += sign;
    }
    add(Token::Type::sign, sign);
    take(sign.size());
  }

  const std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

void refuse(int line, const std::string& message) { throw DataError("line {}: {}", line, message); }

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).run(); }

}  // namespace trireme::data::jinja
