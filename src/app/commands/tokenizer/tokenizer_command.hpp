#pragma once

#include <string>
#include <vector>

namespace trireme::app {

/// `trireme tokenizer ...`: makes a tokenizer from text; encodes and decodes. Returns the exit code; throws Error.
int tokenizer_command(const std::vector<std::string>& arguments);

}  // namespace trireme::app
