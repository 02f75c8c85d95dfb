#pragma once

#include <string>
#include <vector>

namespace trireme::app::megatron {

/// Output of `trireme megatron` for a launch.
struct LaunchReport {
  std::string text;   ///< a line per flag, this program's command, then the problems
  bool runs = false;  ///< nothing is refused
};

/// Translates the words of a launch: torchrun or python with its options, a program of Megatron-LM, the flags. Throws
/// ConfigError if no word is such a program, or if one has a control character, which a terminal would interpret when
/// the command is pasted.
LaunchReport report_on_launch(const std::vector<std::string>& words);

}  // namespace trireme::app::megatron
