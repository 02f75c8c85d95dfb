#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/app/job/command_line.hpp"
#include "src/app/megatron/flag_table.hpp"
#include "src/app/options/options.hpp"
#include "src/model/model_config.hpp"

namespace trireme::app::megatron {

/// A flag of a command line, and its translation or the reason why there is none.
struct Verdict {
  std::string flag;           ///< as written, with its values
  const Flag* row = nullptr;  ///< null: in no release
  Kind kind = Kind::works;
  std::vector<std::string> words;  ///< in this program's spelling
  std::string reason;              ///< why a flag is satisfied or absent
};

/// A command line of Megatron-LM, translated into this program's options.
struct Translation {
  std::vector<std::string> arguments;
  std::vector<Verdict> verdicts;         ///< one for each flag, in order
  std::vector<std::string> model_words;  ///< options of a model for a command that reads it from a checkpoint

  /// Throws CheckpointError with a table of differences if `model_words` describe another model than `stored`,
  /// ConfigError if they are invalid.
  void check_model(const model::ModelConfig& stored) const;
  /// Returns the error message about all absent flags; empty if there are none.
  std::string refusal() const;
  /// Logs a line of the flags with another name here, and a line of those that are satisfied.
  void log() const;
};

/// Translates `arguments` of `command`: old names, underscores for hyphens, 300_000_000, values in quotes,
/// `--flag=value`. Settings in a file of DeepSpeed count as flags. A flag that is one of `options` stays. Flags for
/// options of `train` only are ignored by other commands, except that those of a model become `model_words`. A flag
/// whose options are in neither is absent. Unknown words stay unchanged.
Translation translate(const std::vector<std::string>& arguments, const Options& options,
                      const std::string& command = "train");

/// Reads `options` from a translated command line and translated files of options. Throws one error for absent flags
/// and other problems. Returns nothing if help was requested.
std::optional<Translation> read(const CommandLine& line, Options& options);

}  // namespace trireme::app::megatron
