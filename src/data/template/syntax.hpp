#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/data/template/value.hpp"

namespace trireme::data::jinja {

struct Builtin;

/// Expression of a template. `parts` are its operands in order.
struct Expression {
  enum class Kind {
    constant,     ///< `value`
    variable,     ///< `name`
    list,         ///< parts
    tuple,        ///< parts
    dict,         ///< keys and values in turn
    attribute,    ///< part . name
    item,         ///< part [ part ]
    slice,        ///< three parts, of which those left out are None
    call,         ///< part ( other parts, keywords )
    filter,       ///< part | builtin ( other parts, keywords )
    test,         ///< part is builtin ( other parts, keywords )
    negation,     ///< not part
    minus,        ///< - part
    plus,         ///< + part
    arithmetic,   ///< part name part
    comparison,   ///< part operators[0] part operators[1] part ...
    concat,       ///< part ~ part ~ ...
    conjunction,  ///< part and part
    disjunction,  ///< part or part
    conditional   ///< condition, value, other value if any
  };
  Kind kind = Kind::constant;
  int line = 1;
  int depth = 1;
  std::string name = {};
  Value value = {};
  const Builtin* builtin = nullptr;
  std::vector<Expression> parts = {};
  std::vector<std::pair<std::string, Expression>> keywords = {};
  std::vector<std::string> operators = {};
};

/// Target of an assignment: a name, an attribute of a namespace, or several.
struct Target {
  std::string name = {};
  std::string attribute = {};
  std::vector<Target> parts = {};
  bool is_tuple = false;
};

/// Statement of a template, or text between statements.
struct Statement {
  enum class Kind {
    text,        ///< `name`
    print,       ///< expression
    set,         ///< target = expression
    set_block,   ///< target = body, through the filters of expression if any
    choice,      ///< if expression: body, else: otherwise
    loop,        ///< for target in expression [if condition]: body, else: otherwise
    macro,       ///< macro name(parameters): body
    generation,  ///< body, text of the assistant
    leave,       ///< break
    next         ///< continue
  };
  Kind kind = Kind::text;
  int line = 1;
  std::string name = {};
  Target target = {};
  std::vector<Expression> expressions = {};  ///< expression, condition
  std::vector<std::string> parameters = {};
  std::vector<Expression> defaults = {};  ///< values of the last parameters
  std::vector<Statement> body = {}, otherwise = {};
};

}  // namespace trireme::data::jinja
