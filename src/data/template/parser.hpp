#pragma once

#include <string_view>
#include <vector>

#include "src/data/template/syntax.hpp"

namespace trireme::data::jinja {

/// Parses a template. Throws DataError "line N: ..." for what Jinja refuses, and naming a tag, filter, test or other
/// construct that is not supported.
std::vector<Statement> parse_template(std::string_view source);

}  // namespace trireme::data::jinja
