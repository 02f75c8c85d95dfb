#include "src/data/template/parser.hpp"

#include "src/data/template/expression_parser.hpp"

namespace trireme::data::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  std::vector<Statement> run() { return parse_body({}); }

 private:
  /// Parses up to a tag of these names, whose name becomes the current token.
  std::vector<Statement> parse_body(Names ends) {
    const Nesting nesting(*this);
    std::vector<Statement> body;
    const int begin = line();
    while (!is(Token::Type::end)) {
      if (is(Token::Type::data)) {
        body.push_back({.line = line(), .name = current().text});
        next();
      } else if (is(Token::Type::print_begin)) {
        next();
        body.push_back({.kind = Statement::Kind::print, .line = line()});
        body.back().expressions.push_back(parse_tuple());
        expect(Token::Type::print_end, "'}}'");
      } else {
        next();
        if (std::ranges::any_of(ends, [&](std::string_view end) { return is_name(end); })) return body;
        body.push_back(parse_statement());
        expect(Token::Type::tag_end, "'%}'");
      }
    }
    if (ends.size() > 0) refuse(begin, fmt::format("the tag has no '{}'", *(ends.end() - 1)));
    return body;
  }
  /// Parses the body of a tag, between its end and another tag's name.
  std::vector<Statement> parse_block(Names ends) {
    skip_sign(":");
    expect(Token::Type::tag_end, "'%}'");
    return parse_body(ends);
  }
  std::vector<Statement> parse_last_block(std::string_view end) {
    std::vector<Statement> body = parse_block({end});
    next();
    return body;
  }

  Statement parse_statement() {
    Statement result{.line = line()};
    const std::string tag = expect_name();
    if (tag == "set") return parse_set(std::move(result));
    if (tag == "if") return parse_if(std::move(result));
    if (tag == "for") return parse_for(std::move(result));
    if (tag == "macro") return parse_macro(std::move(result));
    if (tag == "generation") {
      if (is_captured_) refuse(result.line, "'generation' inside a macro or 'set' block is not supported");
      result.kind = Statement::Kind::generation;
      result.body = parse_last_block("endgeneration");
    } else if (tag == "break" || tag == "continue") {
      if (loops_ == 0) refuse(result.line, "'" + tag + "' outside a loop");
      result.kind = tag == "break" ? Statement::Kind::leave : Statement::Kind::next;
    } else {
      const bool is_end = tag.starts_with("end") || tag == "else" || tag == "elif";
      refuse(result.line, is_end ? "unexpected tag '" + tag + "'" : "the tag '" + tag + "' is not supported");
    }
    return result;
  }

  /// Parses a body whose text becomes a value.
  std::vector<Statement> parse_captured(std::string_view end) {
    const bool was_captured = std::exchange(is_captured_, true);
    const int loops = std::exchange(loops_, 0);
    std::vector<Statement> body = parse_last_block(end);
    is_captured_ = was_captured;
    loops_ = loops;
    return body;
  }

  Statement parse_set(Statement result) {
    result.kind = Statement::Kind::set;
    result.target = parse_targets(true);
    if (skip_sign("=")) {
      result.expressions.push_back(parse_tuple());
      return result;
    }
    result.kind = Statement::Kind::set_block;
    if (is_sign("|")) {
      result.expressions.push_back(parse_filters(captured_text()));
    }
    result.body = parse_captured("endset");
    return result;
  }

  Statement parse_if(Statement result) {
    result.kind = Statement::Kind::choice;
    result.expressions.push_back(parse_tuple(false));
    result.body = parse_block({"elif", "else", "endif"});
    // Branches are nested choices.
    const int line_of_branch = line();
    const std::string tag = next().text;
    if (tag == "elif") {
      const Nesting nesting(*this);
      result.otherwise.push_back(parse_if({.line = line_of_branch}));
    } else if (tag == "else") {
      result.otherwise = parse_last_block("endif");
    }
    return result;
  }

  Statement parse_for(Statement result) {
    result.kind = Statement::Kind::loop;
    result.target = parse_targets(false);
    if (!skip_name("in")) refuse_current("'in'");
    result.expressions.push_back(parse_tuple(false));
    if (skip_name("if")) result.expressions.push_back(parse_expression());
    if (is_name("recursive")) refuse(line(), "'recursive' is not supported: use a macro");
    ++loops_;
    result.body = parse_block({"else", "endfor"});
    --loops_;
    if (next().text == "else") result.otherwise = parse_last_block("endfor");
    return result;
  }

  Statement parse_macro(Statement result) {
    result.kind = Statement::Kind::macro;
    result.name = expect_name();
    expect("(");
    while (!is_sign(")")) {
      if (!result.parameters.empty()) expect(",");
      result.parameters.push_back(expect_name());
      if (skip_sign("=")) {
        result.defaults.push_back(parse_expression());
      } else if (!result.defaults.empty()) {
        refuse(line(), "non-default argument follows default argument");
      }
    }
    next();
    result.body = parse_captured("endmacro");
    return result;
  }

  Target parse_target(bool with_attribute) {
    if (skip_sign("(")) {
      const Nesting nesting(*this);
      Target result = parse_targets(with_attribute);
      expect(")");
      return result;
    }
    if (is_name("true") || is_name("false") || is_name("none") || is_name("True") || is_name("False") ||
        is_name("None")) {
      refuse(line(), "can't assign to '" + current().text + "'");
    }
    Target result{.name = expect_name()};
    if (with_attribute && skip_sign(".")) result.attribute = expect_name();
    return result;
  }

  Target parse_targets(bool with_attribute) {
    Target first = parse_target(with_attribute);
    if (!is_sign(",")) return first;
    Target result{.is_tuple = true};
    result.parts.push_back(std::move(first));
    while (skip_sign(",")) {
      if (is_name("in") || is_sign("=") || is_sign(")")) break;
      result.parts.push_back(parse_target(with_attribute));
    }
    return result;
  }

  int loops_ = 0;             // around the current token
  bool is_captured_ = false;  // the text at the current token becomes a value
};

}  // namespace

std::vector<Statement> parse_template(std::string_view source) { return Parser(source).run(); }

}  // namespace trireme::data::jinja
