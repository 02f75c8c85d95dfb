#pragma once

#include <span>
#include <string_view>

/// Flags of Megatron-LM's launch scripts: one table, from its first release in 2019 to August 2026, with the flags that
/// Megatron-DeepSpeed (BLOOM, DeepSpeed), StarCoder, Megatron-LLM and MLCommons added.
namespace trireme::app::megatron {

/// Values that a flag takes.
enum class Values { none, optional, one, list };

/// Meaning of a flag here.
enum class Kind {
  works,      ///< is an option of this program, under its own or another name
  writes,     ///< likewise, and the option writes files beside the checkpoints
  satisfied,  ///< asks for something that is so in any case
  absent      ///< asks for something that this program does not have
};

/// A row of the table.
struct Flag {
  /// With hyphens. "name value" is a row for one value, "name --flag" one beside that flag; they count first. "prefix*"
  /// refuses every flag that begins so and has no row of its own.
  std::string_view name;
  Values values;
  /// First and last with the flag; "-" at the end: still there; a year or project outside. Empty for a prefix.
  std::string_view releases;
  Kind kind;
  std::string_view text;  ///< options with @ for the values, "" for the same name; else the reason
};

/// Returns the row of `name` with this value, else that of `name`, else that of a prefix, else null. Values compare
/// without case.
const Flag* find_flag(std::string_view name, std::string_view value = {});

/// A row that counts for one command alone, "eval", and there before the others. A row without values, of an option
/// that takes some, is the flag without one.
struct CommandFlag {
  std::string_view command;
  Flag flag;
};
std::span<const CommandFlag> flags_of_commands();
/// Returns the row of `name` for `command`, or null.
const Flag* find_command_flag(std::string_view command, std::string_view name);

/// Parts of the table.
std::span<const Flag> flags_that_work();
std::span<const Flag> flags_satisfied();
std::span<const Flag> flags_refused();

/// Calls `visit` with every row.
template <class Visit>
void for_each_flag(const Visit& visit) {
  for (const auto& part : {flags_that_work(), flags_satisfied(), flags_refused()}) {
    for (const Flag& flag : part) visit(flag);
  }
}

}  // namespace trireme::app::megatron
