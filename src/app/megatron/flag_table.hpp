#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Flags of Megatron-LM's launch scripts: one table, from its first release in 2019 to August 2026, with the flags that
/// Megatron-DeepSpeed (BLOOM, DeepSpeed), StarCoder, Megatron-LLM, Swallow, Pai-Megatron-Patch (Pai) and
/// MLCommons added.
namespace trireme::app::megatron {

/// Values that a flag takes.
enum class Values { none, optional, one, list };

/// Meaning of a flag in this program.
enum class Kind {
  works,      ///< an option of this program, under its own or another name
  writes,     ///< likewise; the option writes files beside the checkpoints
  satisfied,  ///< requests something that always holds
  absent      ///< requests something that this program does not have
};

/// A flag of Megatron-LM.
struct Flag {
  /// With hyphens. "name value" is the flag with one value, "name --flag" the flag beside another one; both come first.
  /// "prefix*" is every flag with this prefix that has no row.
  std::string_view name;
  Values values;
  /// First and last release with the flag. "-" at the end: still there. Elsewhere a year or a project; empty for a
  /// prefix.
  std::string_view releases;
  Kind kind;
  std::string_view text;  ///< options, with @ for the values, "" for the same name; else the reason
};

/// A row of the table: flags that differ only in their names.
struct FlagGroup {
  Values values;
  std::string_view releases;
  Kind kind;
  std::string_view text;
  std::string_view names;  ///< separated by ", "
};

/// Parts of the table.
std::span<const FlagGroup> flags_that_work();
std::span<const FlagGroup> flags_satisfied();
std::span<const FlagGroup> flags_refused();

/// Returns a flag with hyphens for underscores.
std::string hyphenated(std::string name);
/// Returns the flags of groups, sorted by name. Rows of a flag beside others keep the order of the groups: the last
/// that applies counts.
std::vector<Flag> flags_of(std::initializer_list<std::span<const FlagGroup>> parts);
const std::vector<Flag>& all_flags();
/// Returns every setting of DeepSpeed's JSON, "fp16.enabled", and "*" for any other.
const std::vector<Flag>& deepspeed_settings();

/// Returns the flag `name` of `flags` with this value, else `name`, else its longest prefix, else null. Values compare
/// without case.
const Flag* find_flag(const std::vector<Flag>& flags, std::string_view name, std::string_view value = {});
inline const Flag* find_flag(std::string_view name, std::string_view value = {}) {
  return find_flag(all_flags(), name, value);
}

/// A flag as one command takes it, "eval", whatever the table says. A flag without values, for an option that takes
/// some, is that flag given without a value.
struct CommandFlag {
  std::string_view command;
  Flag flag;
};
std::span<const CommandFlag> flags_of_commands();
/// Returns the flag `name` of `command`, or null.
const Flag* find_command_flag(std::string_view command, std::string_view name);

}  // namespace trireme::app::megatron
