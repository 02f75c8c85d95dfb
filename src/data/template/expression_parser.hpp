#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/text.hpp"
#include "src/data/template/lexer.hpp"
#include "src/data/template/syntax.hpp"

namespace trireme::data::jinja {

/// Parser of expressions from the tokens of a template.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view source) : tokens_(tokens_of(source)) {}

 protected:
  using Kind = Expression::Kind;
  using Names = std::initializer_list<std::string_view>;

  /// Levels of the text at the current token.
  struct Nesting {
    explicit Nesting(ExpressionParser& parser) : level(parser.nesting_) {
      if (++level > max_nesting) refuse(parser.line(), fmt::format("more than {} levels of nesting", max_nesting));
    }
    ~Nesting() { --level; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    int& level;
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  int line() const { return current().line; }
  bool is(Token::Type type) const { return current().type == type; }
  bool is_sign(std::string_view sign) const { return is(Token::Type::sign) && current().text == sign; }
  bool is_name(std::string_view name) const { return is(Token::Type::name) && current().text == name; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip_sign(std::string_view sign) { return is_sign(sign) && (++at_, true); }
  bool skip_name(std::string_view name) { return is_name(name) && (++at_, true); }

  [[noreturn]] void refuse_current(const std::string& expected = {}) const {
    const std::string found = is(Token::Type::end)       ? "the end of the template"
                              : is(Token::Type::tag_end) ? "the end of the tag"
                                                         : "'" + current().text + "'";
    refuse(line(), expected.empty() ? "unexpected " + found : fmt::format("expected {}, got {}", expected, found));
  }
  void expect(std::string_view sign) {
    if (!skip_sign(sign)) refuse_current(fmt::format("'{}'", sign));
  }
  void expect(Token::Type type, const char* what) {
    if (!is(type)) refuse_current(what);
    next();
  }
  std::string expect_name() {
    if (!is(Token::Type::name)) refuse_current("a name");
    return next().text;
  }

  static Expression make(Kind kind, int line, std::vector<Expression> parts, std::string name = {}) {
    Expression result{.kind = kind, .line = line, .name = std::move(name), .parts = std::move(parts)};
    for (const Expression& part : result.parts) result.depth = std::max(result.depth, part.depth + 1);
    check_depth(result);
    return result;
  }
  template <class... Part>
  static Expression join(Kind kind, int line, std::string name, Part... part) {
    std::vector<Expression> parts;
    (parts.push_back(std::move(part)), ...);
    return make(kind, line, std::move(parts), std::move(name));
  }
  static void check_depth(const Expression& expression) {
    if (expression.depth > max_expression_depth) {
      refuse(expression.line, fmt::format("an expression has more than {} levels", max_expression_depth));
    }
  }
  static Expression constant(Value value, int line) { return {.line = line, .value = std::move(value)}; }

  /// Parses an expression, or several with commas between, a tuple.
  Expression parse_tuple(bool with_condition = true, bool may_be_empty = false);
  Expression parse_expression();
  /// Parses `| filter` after the sign, and filters from the sign on.
  Expression parse_filter(Expression subject);
  Expression parse_filters(Expression subject);
  /// The variable without a name: the text of a body.
  Expression captured_text() const { return make(Kind::variable, line(), {}); }

 private:
  Expression parse_or();
  Expression parse_and();
  Expression parse_not();
  /// Returns the operator of a comparison at the current token, and skips it.
  std::string take_comparison();
  Expression parse_comparison();
  /// Parses operands between operators that group from the left.
  template <class Parse>
  Expression parse_left(Names signs, const Parse& parse);
  Expression parse_sum();
  Expression parse_concat();
  Expression parse_product();
  Expression parse_unary(bool with_filter);
  Expression parse_primary();
  template <class Parse>
  std::vector<Expression> parse_items(std::string_view end, const Parse& parse);
  Expression parse_postfix(Expression result);
  Expression parse_subscript();
  /// Adds the arguments in parentheses at the current token.
  void parse_arguments(Expression& result);
  Expression parse_call(Expression function);
  Expression parse_test(Expression subject);

  static constexpr int max_nesting = 150, max_expression_depth = 250;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace trireme::data::jinja
