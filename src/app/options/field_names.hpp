#pragma once

#include <string>
#include <string_view>

namespace trireme::app {

/// Replaces each `<field>` of `text` by the flag that sets the field: "<seq_length> 7" becomes "--seq-length 7".
///
/// Code below app reports problems by field. The table of flags is in field_names.cpp; the test
/// `lint.flags` checks that it is complete. Other words in angle brackets stay as they are.
std::string with_flags(std::string_view text);

}  // namespace trireme::app
