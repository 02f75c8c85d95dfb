#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::app::megatron {

/// A command of a script that starts a Python program of training.
struct Launch {
  int line = 1;
  std::vector<std::string> launcher;   ///< words before the program: torchrun, srun, their options
  std::string program;                 ///< pretrain_gpt.py
  std::vector<std::string> arguments;  ///< words behind it
};

/// Content of a launch script.
struct ShellScript {
  std::vector<Launch> launches;
  std::set<std::string> unknown;     ///< variables without a value that it uses, and commands whose output it uses
  std::vector<std::string> sourced;  ///< other scripts that it reads
};

/// Reads a script for bash and executes nothing. It follows variables, arrays, sums, `if` and `case` where the values
/// are in the script, `eval` and `bash -c`. A test that cannot be decided counts as true, a loop runs once. Throws
/// ConfigError where a quote or bracket does not close.
ShellScript read_shell_script(std::string_view text);

}  // namespace trireme::app::megatron
