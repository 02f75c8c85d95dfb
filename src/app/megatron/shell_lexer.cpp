#include "src/app/megatron/shell_lexer.hpp"

#include <algorithm>
#include <utility>

#include "src/base/check.hpp"

namespace trireme::app::megatron {
namespace {

/// Returns the place behind the bracket that closes the one at `i`.
std::size_t behind_bracket(std::string_view text, std::size_t i, char open, char close, int outer) {
  TRIREME_CHECK(outer < 100, ConfigError, "the script has more than 100 brackets in one another");
  int depth = 0;
  for (std::size_t k = i; k < text.size();) {
    if (text[k] == open) ++depth;
    if (text[k] == close && --depth == 0) return k + 1;
    k = behind_shell_unit(text, k, outer + 1);
  }
  throw ConfigError("the script has a '{}' that does not close: '{}'", open, text.substr(i, 40));
}

/// Returns the place behind an array's bracket at `i`, where comments count as nothing.
std::size_t behind_array(std::string_view text, std::size_t i) {
  for (std::size_t k = i + 1; k < text.size();) {
    if (text[k] == ')') return k + 1;
    const bool begins_word = std::string_view(" \t\n(").find(text[k - 1]) != std::string_view::npos;
    k = text[k] == '#' && begins_word ? std::min(text.find('\n', k), text.size()) : behind_shell_unit(text, k);
  }
  throw ConfigError("the script has an array that does not close: '{}'", text.substr(i, 40));
}

bool ends_word(char c) { return std::string_view(" \t\n;&|()<>").find(c) != std::string_view::npos; }

/// Cuts one script.
class Lexer {
 public:
  Lexer(std::string_view text, int line, std::vector<ShellDocument>* documents)
      : text_(text), line_(line), kept_(documents) {}

  std::vector<ShellToken> run() {
    while (i_ < text_.size()) step();
    return std::move(tokens_);
  }

 private:
  void advance_to(std::size_t end) {
    end = std::min(end, text_.size());
    line_ += static_cast<int>(std::ranges::count(text_.substr(i_, end - i_), '\n'));
    i_ = end;
  }

  void step() {
    const char c = text_[i_];
    if (c == ' ' || c == '\t') return advance_to(i_ + 1);
    if (text_.substr(i_).starts_with("\\\n")) return advance_to(i_ + 2);
    if (c == '#') return advance_to(text_.find('\n', i_));
    if (c == '<' || c == '>') return redirection();
    if (c == '\n') {
      operation(1);
      return skip_documents();
    }
    if (ends_word(c)) {
      const bool is_double = i_ + 1 < text_.size() && text_[i_ + 1] == c && c != '(' && c != ')';
      const bool redirects = c == '&' && i_ + 1 < text_.size() && text_[i_ + 1] == '>';
      return redirects ? advance_to(i_ + 1) : operation(is_double ? 2 : 1);
    }
    word();
  }

  void operation(std::size_t size) {
    tokens_.push_back({ShellToken::Type::operation, std::string(text_.substr(i_, size)), line_});
    advance_to(i_ + size);
  }

  void word() {
    ShellToken token{ShellToken::Type::word, "", line_};
    while (i_ < text_.size() && !ends_word(text_[i_])) {
      std::size_t end = behind_shell_unit(text_, i_);
      if (text_[i_] == '=' && end < text_.size() && text_[end] == '(') end = behind_array(text_, end);
      if (text_.substr(i_, 2) != "\\\n") token.text += text_.substr(i_, end - i_);
      advance_to(end);
    }
    const bool is_descriptor = token.text.find_first_not_of("0123456789") == token.text.npos;
    const bool redirects = i_ < text_.size() && (text_[i_] == '<' || text_[i_] == '>');
    if (!is_descriptor || !redirects) tokens_.push_back(std::move(token));
  }

  /// Leaves out `> FILE`, `2>&1`, `<<< TEXT`, and remembers the end of `<< END`.
  void redirection() {
    const std::size_t end = std::min(text_.find_first_not_of("<>&|-", i_), text_.size());
    const std::string_view sign = text_.substr(i_, end - i_);
    advance_to(std::min(text_.find_first_not_of(" \t", end), text_.size()));
    const std::size_t begin = i_;
    while (i_ < text_.size() && !ends_word(text_[i_])) advance_to(behind_shell_unit(text_, i_));
    if (sign != "<<" && sign != "<<-") return;
    std::string name(text_.substr(begin, i_ - begin));
    std::erase_if(name, [](char c) { return c == '\'' || c == '"' || c == '\\'; });
    documents_.push_back(name);
  }

  /// Leaves out the lines of the here-documents that begin behind this line, and keeps them where that is asked for.
  void skip_documents() {
    for (const std::string& name : documents_) {
      ShellDocument document{.text = {}, .line = line_};
      for (bool more = true; more && i_ < text_.size();) {
        const std::size_t end = std::min(text_.find('\n', i_), text_.size());
        std::string_view line = text_.substr(i_, end - i_);
        line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
        more = line != name;
        if (more) document.text += std::string(text_.substr(i_, end - i_)) + "\n";
        advance_to(end + 1);
      }
      if (kept_ != nullptr) kept_->push_back(std::move(document));
    }
    documents_.clear();
  }

  std::string_view text_;
  std::size_t i_ = 0;
  int line_;
  std::vector<ShellToken> tokens_;
  std::vector<std::string> documents_;  ///< their last lines
  std::vector<ShellDocument>* kept_;
};

}  // namespace

std::size_t behind_shell_unit(std::string_view text, std::size_t i, int depth) {
  const char c = text[i];
  if (c == '\\') return std::min(i + 2, text.size());
  if (c == '\'' || c == '`') {
    const std::size_t close = text.find(c, i + 1);
    TRIREME_CHECK(close != text.npos, ConfigError, "the script has a quote that does not close: {}",
                  text.substr(i, 40));
    return close + 1;
  }
  if (c == '"') {
    std::size_t k = i + 1;
    while (k < text.size() && text[k] != '"') k = text[k] == '\'' ? k + 1 : behind_shell_unit(text, k, depth + 1);
    TRIREME_CHECK(k < text.size(), ConfigError, "the script has a quote that does not close: {}", text.substr(i, 40));
    return k + 1;
  }
  if (c == '$' && i + 1 < text.size() && text[i + 1] == '(') return behind_bracket(text, i + 1, '(', ')', depth);
  if (c == '$' && i + 1 < text.size() && text[i + 1] == '{') return behind_bracket(text, i + 1, '{', '}', depth);
  return i + 1;
}

std::vector<ShellToken> shell_tokens(std::string_view text, int first_line, std::vector<ShellDocument>* documents) {
  return Lexer(text, first_line, documents).run();
}

}  // namespace trireme::app::megatron
