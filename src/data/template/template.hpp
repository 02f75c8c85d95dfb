#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/data/template/syntax.hpp"

namespace trireme::data::jinja {

/// Bounds of one rendering.
struct Limits {
  std::int64_t steps = std::int64_t{1} << 26;  ///< expressions and statements; large values take more than one
  std::int64_t bytes = std::int64_t{1} << 29;  ///< texts that are made on the way
};

/// Text that a template writes.
struct Rendering {
  std::string text;
  /// Bytes [begin, end) of the text inside `{% generation %}`: words of the assistant.
  std::vector<std::pair<std::size_t, std::size_t>> generated;
};

/// Sets the time that `strftime_now` shows in all renderings, so that they are equal; default the program's start.
void set_time(std::time_t time);

/// Template in the part of Jinja 3 that chat templates use, with the environment of transformers: trim_blocks,
/// lstrip_blocks, `break` and `continue`, `{% generation %}`, `raise_exception`, `strftime_now` and its own `tojson`.
/// Values do not change, as in Jinja's ImmutableSandboxedEnvironment. Differences: `safe` and `escape` return ordinary
/// texts, generators are read at once, integers have 64 bits.
class Template {
 public:
  /// Throws DataError "NAME, line N: ..." for an error of syntax, or naming a construct that is not supported.
  Template(std::string name, std::string_view source);

  /// `variables` is a mapping. Throws DataError "NAME, line N: ..." where Jinja fails, for a value that only Jinja
  /// supports, and beyond the limits.
  Rendering render(const Value& variables, const Limits& limits = {}) const;

  const std::string& name() const { return name_; }
  /// Returns whether the template has a block `{% generation %}`, whatever a rendering takes.
  bool marks_generation() const;

 private:
  std::string name_;
  std::vector<Statement> statements_;
};

}  // namespace trireme::data::jinja
