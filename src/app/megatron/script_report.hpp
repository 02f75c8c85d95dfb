#pragma once

#include <string>
#include <string_view>

namespace trireme::app::megatron {

/// Text that `train --megatron-script` prints of a launch script.
struct ScriptReport {
  std::string text;   ///< a line for each flag, then the problems and the command of this program
  bool runs = false;  ///< nothing is refused
};

/// Reads a launch script, which `name` names in messages. Throws ConfigError where no command of it trains.
ScriptReport report_on_script(std::string_view script, const std::string& name);

}  // namespace trireme::app::megatron
