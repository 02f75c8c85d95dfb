#pragma once

#include <string>
#include <string_view>

namespace trireme::app {

/// Replaces each `<field>` of a message by its flag, the field's name with hyphens: "<seq_length> 7" becomes
/// "--seq-length 7". Other words in angle brackets stay unchanged.
///
/// Code below app reports problems by field. The test `lint.flags` checks that each field is an option. Implemented in
/// src/app, which has the table of commands.
std::string with_flags(std::string_view text);

/// Replaces every `<field>` of a literal text, such as a help text that is part of the declaration of an option.
std::string with_own_flags(std::string_view text);

}  // namespace trireme::app
