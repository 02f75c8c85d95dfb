#pragma once

#include <functional>
#include <string>

#include "src/base/error.hpp"
#include "src/data/tasks/task_text.hpp"

namespace trireme::app {

/// Runs `function`, and prefixes the message of a DataError with `where`.
template <class Function>
auto located(const std::string& where, const Function& function) {
  try {
    return function();
  } catch (const DataError& error) {
    throw DataError("{}: {}", where, error.what());
  }
}

/// Returns the text of a file, plain or compressed. Throws IoError, and DataError with file and line for bytes that are
/// not UTF-8.
std::string read_text_file(const std::string& path);

/// Calls `add(line, line_number, where)` for each line of a file that is not blank, through `bad_lines`.
void for_each_json_line(const std::string& path, data::BadLines& bad_lines,
                        const std::function<void(const std::string&, std::int64_t, const std::string&)>& add);

}  // namespace trireme::app
