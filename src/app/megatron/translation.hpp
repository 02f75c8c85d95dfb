#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/app/job/command_line.hpp"
#include "src/app/megatron/flag_table.hpp"
#include "src/app/options/options.hpp"
#include "src/model/model_config.hpp"

namespace trireme::app::megatron {

/// A flag of a command line, and the words or the reason that it becomes.
struct Verdict {
  std::string flag;           ///< as written, with its values
  const Flag* row = nullptr;  ///< null: no release has it
  Kind kind = Kind::works;
  std::vector<std::string> words;  ///< as this program spells them
  std::string reason;              ///< says why a flag is satisfied or absent
};

/// A command line in Megatron-LM's words, brought into this program's.
struct Translation {
  std::vector<std::string> arguments;
  std::vector<Verdict> verdicts;         ///< one for each flag, in their order
  std::vector<std::string> model_words;  ///< options of a model that the command lacks: it has a checkpoint's

  /// Throws CheckpointError with a table of differences where `model_words` ask for another model than `stored`,
  /// ConfigError if they make no sense.
  void check_model(const model::ModelConfig& stored) const;
  /// Returns the error about all flags that are absent; empty if there is none.
  std::string refusal() const;
  /// Logs the flags that have another name here in one line, and those that are satisfied in another.
  void log() const;
};

/// Translates `arguments` of `command`: old names, underscores for hyphens, 300_000_000, values in quotes,
/// `--flag=value`. A flag that is one of `options` stays. A flag that leads to options of `train` alone has no use in
/// another command; those of a model are its `model_words`. A flag whose options are in neither is absent. Words in no
/// release stay as they are.
Translation translate(const std::vector<std::string>& arguments, const Options& options,
                      const std::string& command = "train");

/// Reads `options` from a translated command line, and from files of options, which are translated, too. Flags that are
/// absent and other problems are one error. Returns nothing where help was asked for.
std::optional<Translation> read(const CommandLine& line, Options& options);

}  // namespace trireme::app::megatron
