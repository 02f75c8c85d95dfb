#include "tests/ptx/statements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace trireme::ptx {
namespace {

bool belongs_to_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '.' || c == '%';
}

/// Reads a text sequentially.
class Reader {
 public:
  Reader(std::string_view text, int line) : text_(text), line_(line) {}

  /// Next character after blanks and comments; 0 at the end.
  char next() {
    for (; at_ < text_.size(); ++at_) {
      if (text_.substr(at_, 2) == "//") at_ = std::min(text_.find('\n', at_), text_.size() - 1);
      if (text_[at_] == '\n') ++line_;
      if (std::isspace(static_cast<unsigned char>(text_[at_])) == 0) return text_[at_];
    }
    return 0;
  }
  bool take(char c) {
    if (next() != c) return false;
    ++at_;
    return true;
  }
  /// A word, a number with its sign, or one other character.
  std::string_view word() {
    next();
    const std::size_t begin = at_;
    if (at_ < text_.size() && text_[at_] == '-') ++at_;
    while (at_ < text_.size()) {
      const std::size_t length = text_.substr(at_, 2) == "::" ? 2 : belongs_to_word(text_[at_]) ? 1 : 0;
      if (length == 0) break;
      at_ += length;
    }
    if (at_ == begin && at_ < text_.size()) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  /// The rest up to `c` and behind it.
  std::string_view until(char c) {
    const std::size_t begin = at_, end = std::min(text_.find(c, at_), text_.size());
    for (; at_ < end; ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
    at_ = std::min(end + 1, text_.size());
    line_ += c == '\n' ? 1 : 0;
    return text_.substr(begin, end - begin);
  }
  std::size_t position() const { return at_; }
  int line() const { return line_; }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  int line_;
};

Statement::Address address_of(Reader& reader) {
  Statement::Address address{reader.word()};
  if (reader.take('+') || reader.next() == '-') address.offset = integer_of(reader.word());
  return address;
}

/// Operands, up to the semicolon.
void read_operands(Reader& reader, Statement& statement) {
  while (!reader.take(';')) {
    if (reader.next() == 0) throw PtxError("the PTX ends within an instruction");
    if (reader.take('[')) {
      statement.addresses.push_back(address_of(reader));
    } else if (reader.take('{')) {
      if (statement.first_list < 0) statement.first_list = static_cast<int>(statement.words.size());
    } else if (const std::string_view word = reader.word(); word.size() > 1 || belongs_to_word(word[0])) {
      statement.words.push_back(word);
    } else if (std::string_view(",{}()|]").find(word) == std::string_view::npos) {
      throw PtxError(fmt::format("operands with '{}' are not understood", word));
    }
  }
}

Statement statement_at(Reader& reader) {
  Statement statement;
  if (reader.take('{')) {
    statement.kind = Statement::Kind::begin;
    return statement;
  }
  if (reader.take('}')) {
    statement.kind = Statement::Kind::end;
    return statement;
  }
  if (reader.take('@')) {
    statement.negated = reader.take('!');
    statement.guard = reader.word();
  }
  statement.opcode = reader.word();
  if (statement.opcode[0] == '.') {
    statement.kind = Statement::Kind::directive;
    statement.words = words_of(reader.until(statement.opcode == ".loc" ? '\n' : ';'));
  } else if (reader.take(':')) {
    statement.kind = Statement::Kind::label;
  } else {
    read_operands(reader, statement);
  }
  return statement;
}

}  // namespace

void refuse(int line, std::string_view text, const std::string& reason) {
  throw PtxError(fmt::format("line {}: {}: {}", line, text, reason));
}

std::vector<Statement> statements_of(std::string_view body, int line) {
  std::vector<Statement> statements;
  Reader reader(body, line);
  while (reader.next() != 0) {
    const std::size_t begin = reader.position();
    const int at = reader.line();
    try {
      statements.push_back(statement_at(reader));
    } catch (const PtxError& error) {
      refuse(at, body.substr(begin, body.find('\n', begin) - begin), error.what());
    }
    statements.back().line = at;
    statements.back().text = body.substr(begin, reader.position() - begin);
  }
  return statements;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  Reader reader(text, 0);
  while (reader.next() != 0) words.push_back(reader.word());
  return words;
}

Variable variable_of(const std::vector<std::string_view>& words) {
  Variable variable;
  std::size_t element = 0, i = 0;
  for (; i < words.size() && words[i][0] == '.'; ++i) {
    const std::string_view word = words[i];
    if (word == ".align") {
      variable.alignment = static_cast<std::size_t>(integer_of(words.at(++i)));
    } else if (word == ".shared") {
      variable.space = Space::shared;
    } else if (word == ".local") {
      variable.space = Space::local;
    } else if (word == ".param") {
      variable.space = Space::parameter;
    } else if (word != ".global" && word != ".const" && word != ".extern" && word != ".visible" && word != ".weak") {
      element = size_of_type(word);
    }
  }
  if (i == words.size() || element == 0) throw PtxError("this declaration is not understood");
  variable.name = words[i];
  variable.size = variable.element_bytes = element;
  variable.alignment = std::max(variable.alignment, element);
  if (i + 2 < words.size() && words[i + 1] == "[") {
    variable.is_dynamic = words[i + 2] == "]";
    variable.size = variable.is_dynamic ? 0 : element * static_cast<std::size_t>(integer_of(words[i + 2]));
  }
  return variable;
}

std::size_t size_of_type(std::string_view type) {
  if (type == ".pred") return 1;
  const std::size_t digits = type.find_first_of("123468");
  const std::int64_t bits = digits == std::string_view::npos ? 0 : integer_of(type.substr(digits));
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64) throw PtxError(fmt::format("the type {} is unknown", type));
  return static_cast<std::size_t>(bits / 8);
}

std::int64_t integer_of(std::string_view word) {
  const bool negative = word.starts_with('-');
  const std::string digits(word.substr(negative ? 1 : 0));
  std::size_t read = 0;
  std::uint64_t value = 0;
  try {
    value = std::stoull(digits, &read, 0);
  } catch (const std::exception&) {
    read = 0;
  }
  const bool is_unsigned = read + 1 == digits.size() && digits.back() == 'U';
  if (read == 0 || (read != digits.size() && !is_unsigned)) throw PtxError(fmt::format("'{}' is no integer", word));
  return static_cast<std::int64_t>(negative ? -value : value);
}

}  // namespace trireme::ptx
