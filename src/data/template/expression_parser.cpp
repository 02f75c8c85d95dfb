#include "src/data/template/expression_parser.hpp"

#include <cstdlib>

#include "src/base/parse_number.hpp"
#include "src/data/template/builtins.hpp"

namespace trireme::data::jinja {

Expression ExpressionParser::parse_tuple(bool with_condition, bool may_be_empty) {
  const int begin = line();
  std::vector<Expression> parts;
  bool is_tuple = false;
  while (true) {
    if (is(Token::Type::print_end) || is(Token::Type::tag_end) || is_sign(")")) break;
    parts.push_back(with_condition ? parse_expression() : parse_or());
    if (!skip_sign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && parts.empty() && !may_be_empty) refuse_current("an expression");
  if (!is_tuple && !parts.empty()) return std::move(parts[0]);
  return make(Kind::tuple, begin, std::move(parts));
}

Expression ExpressionParser::parse_expression() {
  const Nesting nesting(*this);
  Expression result = parse_or();
  while (is_name("if")) {
    const int begin = next().line;
    std::vector<Expression> parts;
    parts.push_back(parse_or());
    parts.push_back(std::move(result));
    if (skip_name("else")) parts.push_back(parse_expression());
    result = make(Kind::conditional, begin, std::move(parts));
  }
  return result;
}

Expression ExpressionParser::parse_or() {
  Expression left = parse_and();
  while (is_name("or")) {
    const int begin = next().line;
    left = join(Kind::disjunction, begin, {}, std::move(left), parse_and());
  }
  return left;
}

Expression ExpressionParser::parse_and() {
  Expression left = parse_not();
  while (is_name("and")) {
    const int begin = next().line;
    left = join(Kind::conjunction, begin, {}, std::move(left), parse_not());
  }
  return left;
}

Expression ExpressionParser::parse_not() {
  if (!is_name("not")) return parse_comparison();
  const Nesting nesting(*this);
  const int begin = next().line;
  return join(Kind::negation, begin, {}, parse_not());
}

std::string ExpressionParser::take_comparison() {
  for (const std::string_view sign : {"==", "!=", "<", "<=", ">", ">="}) {
    if (skip_sign(sign)) return std::string(sign);
  }
  if (skip_name("in")) return "in";
  if (is_name("not") && following().type == Token::Type::name && following().text == "in") {
    at_ += 2;
    return "not in";
  }
  return {};
}

Expression ExpressionParser::parse_comparison() {
  const int begin = line();
  std::vector<Expression> parts;
  parts.push_back(parse_sum());
  std::vector<std::string> operators;
  for (std::string sign = take_comparison(); !sign.empty(); sign = take_comparison()) {
    operators.push_back(std::move(sign));
    parts.push_back(parse_sum());
  }
  if (operators.empty()) return std::move(parts[0]);
  Expression result = make(Kind::comparison, begin, std::move(parts));
  result.operators = std::move(operators);
  return result;
}

template <class Parse>
Expression ExpressionParser::parse_left(Names signs, const Parse& parse) {
  Expression left = parse();
  while (is(Token::Type::sign) && std::ranges::find(signs, current().text) != signs.end()) {
    const Token sign = next();
    left = join(Kind::arithmetic, sign.line, sign.text, std::move(left), parse());
  }
  return left;
}

Expression ExpressionParser::parse_sum() {
  return parse_left({"+", "-"}, [&] { return parse_concat(); });
}

Expression ExpressionParser::parse_concat() {
  const int begin = line();
  std::vector<Expression> parts;
  do {
    parts.push_back(parse_product());
  } while (skip_sign("~"));
  return parts.size() == 1 ? std::move(parts[0]) : make(Kind::concat, begin, std::move(parts));
}

Expression ExpressionParser::parse_product() {
  return parse_left({"*", "/", "//", "%"}, [&] { return parse_left({"**"}, [&] { return parse_unary(true); }); });
}

Expression ExpressionParser::parse_unary(bool with_filter) {
  const Nesting nesting(*this);
  const int begin = line();
  const bool is_minus = is_sign("-");
  Expression result;
  if (is_minus || is_sign("+")) {
    next();
    result = join(is_minus ? Kind::minus : Kind::plus, begin, {}, parse_unary(false));
  } else {
    result = parse_primary();
  }
  result = parse_postfix(std::move(result));
  while (with_filter) {
    if (skip_sign("|")) {
      result = parse_filter(std::move(result));
    } else if (skip_name("is")) {
      result = parse_test(std::move(result));
    } else if (is_sign("(")) {
      result = parse_call(std::move(result));
    } else {
      break;
    }
  }
  return result;
}

Expression ExpressionParser::parse_primary() {
  const Token token = next();
  switch (token.type) {
    case Token::Type::name:
      if (token.text == "true" || token.text == "True") return constant(Value::boolean(true), token.line);
      if (token.text == "false" || token.text == "False") return constant(Value::boolean(false), token.line);
      if (token.text == "none" || token.text == "None") return constant(Value(), token.line);
      for (const std::string_view name :
           {"caller", "varargs", "kwargs", "self", "super", "cycler", "joiner", "lipsum"}) {
        if (token.text == name) refuse(token.line, "the variable '" + token.text + "' is not supported");
      }
      return make(Kind::variable, token.line, {}, token.text);
    case Token::Type::text: {
      std::string text = token.text;
      while (is(Token::Type::text)) text += next().text;
      return constant(Value::text(std::move(text)), token.line);
    }
    case Token::Type::integer: {
      const auto value = parse_number<std::int64_t>(token.text);
      if (!value) refuse(token.line, "the integer " + token.text + " needs more than 64 bits");
      return constant(Value::integer(*value), token.line);
    }
    case Token::Type::number:
      return constant(Value::number(std::strtod(token.text.c_str(), nullptr)), token.line);
    default:
      break;
  }
  if (token.type == Token::Type::sign && token.text == "(") {
    Expression result = parse_tuple(true, true);
    expect(")");
    return result;
  }
  if (token.type == Token::Type::sign && token.text == "[") {
    return make(Kind::list, token.line, parse_items("]", [&](auto& parts) { parts.push_back(parse_expression()); }));
  }
  if (token.type == Token::Type::sign && token.text == "{") {
    return make(Kind::dict, token.line, parse_items("}", [&](auto& parts) {
                  parts.push_back(parse_expression());
                  expect(":");
                  parts.push_back(parse_expression());
                }));
  }
  if (token.type != Token::Type::end) --at_;
  refuse_current();
}

template <class Parse>
std::vector<Expression> ExpressionParser::parse_items(std::string_view end, const Parse& parse) {
  std::vector<Expression> parts;
  while (!is_sign(end)) {
    if (!parts.empty()) expect(",");
    if (is_sign(end)) break;
    parse(parts);
  }
  next();
  return parts;
}

Expression ExpressionParser::parse_postfix(Expression result) {
  while (true) {
    if (is_sign(".")) {
      const int begin = next().line;
      const Token name = next();
      if (name.type == Token::Type::name) {
        result = join(Kind::attribute, begin, name.text, std::move(result));
      } else if (const auto index = parse_number<std::int64_t>(name.text); name.type == Token::Type::integer && index) {
        result = join(Kind::item, begin, {}, std::move(result), constant(Value::integer(*index), begin));
      } else {
        refuse(name.line, "expected name or number");
      }
    } else if (is_sign("[")) {
      const int begin = next().line;
      Expression key = parse_subscript();
      if (is_sign(",")) refuse(line(), "a subscript with a comma is not supported");
      expect("]");
      result = join(Kind::item, begin, {}, std::move(result), std::move(key));
    } else if (is_sign("(")) {
      result = parse_call(std::move(result));
    } else {
      return result;
    }
  }
}

Expression ExpressionParser::parse_subscript() {
  const int begin = line();
  std::vector<Expression> parts;
  const auto part = [&] {
    const bool is_left_out = is_sign(":") || is_sign("]") || is_sign(",");
    parts.push_back(is_left_out ? constant(Value(), line()) : parse_expression());
  };
  if (is_sign("]") || is_sign(",")) refuse_current("an index");
  part();
  if (!is_sign(":")) return std::move(parts[0]);
  while (parts.size() < 3 && skip_sign(":")) part();
  while (parts.size() < 3) parts.push_back(constant(Value(), begin));
  return make(Kind::slice, begin, std::move(parts));
}

void ExpressionParser::parse_arguments(Expression& result) {
  expect("(");
  for (bool is_first = true; !is_sign(")"); is_first = false) {
    if (!is_first) {
      expect(",");
      if (is_sign(")")) break;
    }
    if (is_sign("*") || is_sign("**")) refuse(line(), "unpacked arguments are not supported");
    if (is(Token::Type::name) && following().type == Token::Type::sign && following().text == "=") {
      std::string name = next().text;
      next();
      result.keywords.emplace_back(std::move(name), parse_expression());
      result.depth = std::max(result.depth, result.keywords.back().second.depth + 1);
    } else {
      if (!result.keywords.empty()) refuse(line(), "invalid syntax for function call expression");
      result.parts.push_back(parse_expression());
      result.depth = std::max(result.depth, result.parts.back().depth + 1);
    }
  }
  next();
  check_depth(result);
}

Expression ExpressionParser::parse_call(Expression function) {
  Expression result = join(Kind::call, line(), {}, std::move(function));
  parse_arguments(result);
  return result;
}

Expression ExpressionParser::parse_filter(Expression subject) {
  const int begin = line();
  const std::string name = expect_name();
  Expression result = join(Kind::filter, begin, name, std::move(subject));
  result.builtin = find_filter(name);
  if (result.builtin == nullptr) refuse(begin, "the filter '" + name + "' is not supported");
  if (is_sign("(")) parse_arguments(result);
  return result;
}

Expression ExpressionParser::parse_filters(Expression subject) {
  while (skip_sign("|")) subject = parse_filter(std::move(subject));
  return subject;
}

Expression ExpressionParser::parse_test(Expression subject) {
  const int begin = line();
  const bool is_negated = skip_name("not");
  const std::string name = expect_name();
  Expression result = join(Kind::test, begin, name, std::move(subject));
  result.builtin = find_test(name);
  if (result.builtin == nullptr) refuse(begin, "the test '" + name + "' is not supported");
  const bool begins_operand = is(Token::Type::name) || is(Token::Type::text) || is(Token::Type::integer) ||
                              is(Token::Type::number) || is_sign("[") || is_sign("{");
  if (is_sign("(")) {
    parse_arguments(result);
  } else if (is_name("is")) {
    refuse(line(), "You cannot chain multiple tests with is");
  } else if (begins_operand && !is_name("else") && !is_name("or") && !is_name("and")) {
    result.parts.push_back(parse_postfix(parse_primary()));
    result.depth = std::max(result.depth, result.parts.back().depth + 1);
    check_depth(result);
  }
  return is_negated ? join(Kind::negation, begin, {}, std::move(result)) : result;
}

}  // namespace trireme::data::jinja
