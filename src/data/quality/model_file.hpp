#pragma once

#include <string>

namespace trireme::data {

/// Checks a file for fastText, which itself looks only at the first bytes of a model: it reads on behind the end of a
/// file that was cut off, and uses wrong sizes. Throws DataError unless the file is entirely a model of version 11
/// or 12 (.bin, or .ftz with quantized matrices), whose dictionary, matrices and options fit each other. Values of
/// matrices are not checked.
void check_model_file(const std::string& path);

}  // namespace trireme::data
