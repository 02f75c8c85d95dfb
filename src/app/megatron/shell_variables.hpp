#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::app::megatron {

/// Variables of a shell script, and the words that they make. Nothing is executed: `$(COMMAND)` and variables without
/// a value stay as they are written, as open parts between marks.
class ShellVariables {
 public:
  /// Takes `NAME=VALUE`, `NAME+=VALUE` or `NAME=(VALUE ...)`. Returns false where `word` is none of them.
  bool assign(std::string_view word);
  void set(const std::string& name, std::vector<std::string> values);
  /// Returns the value, the first one of an array, without marks.
  std::optional<std::string> value(const std::string& name) const;

  /// Returns the fields that a word of a command becomes: without quotes, cut at the spaces of unquoted values.
  std::vector<std::string> fields(std::string_view word);
  /// Returns the one text that a word becomes in an assignment.
  std::string text(std::string_view word);
  /// Returns the text that a word becomes in a test, without marks. A variable without a value is empty there.
  std::string tested(std::string_view word);

  /// Returns variables that were used without a value.
  const std::set<std::string>& unknown() const { return unknown_; }
  /// Returns commands whose output was used, as they are written.
  const std::set<std::string>& commands() const { return commands_; }

 private:
  struct Result {
    std::vector<std::string> fields;
    bool is_open = false;  ///< the last field goes on
    bool splits = false;   ///< at the spaces of unquoted values
  };
  void expand(std::string_view raw, bool quoted, Result& result, int depth);
  std::size_t expand_dollar(std::string_view raw, std::size_t i, bool quoted, Result& result, int depth);
  void expand_braces(std::string_view inner, bool quoted, Result& result, int depth);
  void add_variable(const std::string& name, std::string_view unit, bool quoted, Result& result);
  void add_unknown(const std::string& name, std::string_view unit, bool quoted, Result& result);
  void add_command(std::string_view unit, bool quoted, Result& result);
  void add_open(std::string_view unit, bool quoted, Result& result) const;
  static void add(std::string_view value, Result& result);
  static void add_value(std::string_view value, bool quoted, Result& result);

  std::map<std::string, std::vector<std::string>> values_;
  std::set<std::string> unknown_, commands_;
  bool unknown_is_empty_ = false;
};

}  // namespace trireme::app::megatron
