#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::app::megatron {

/// A command of a script that starts a Python program of training, of a task or of generation.
struct Launch {
  int line = 1;
  std::vector<std::string> launcher;   ///< words before the program: torchrun, srun, their options
  std::string program;                 ///< pretrain_gpt.py
  std::vector<std::string> arguments;  ///< words behind it, with marks around their open parts (open_parts.hpp)

  /// Returns whether the program writes text with a trained model.
  bool is_generation() const;
};

/// Content of a launch script.
struct ShellScript {
  std::vector<Launch> launches;
  std::set<std::string> unknown;     ///< variables without a value that it uses
  std::set<std::string> commands;    ///< commands whose output it uses, as written: $(nproc)
  std::vector<std::string> sourced;  ///< other scripts that it reads
};

/// Reads a script for bash and executes nothing. It follows variables, arrays, sums, `if` and `case` where the values
/// are in the script, `eval` and `bash -c`. A test that cannot be decided counts as true, a loop runs once. A
/// placeholder, `<Specify path>`, is a variable without a value, `${Specify_path}`. Throws ConfigError where a quote or
/// bracket does not close, and for a control character, which a terminal would obey when the text is pasted.
ShellScript read_shell_script(std::string_view text);

}  // namespace trireme::app::megatron
