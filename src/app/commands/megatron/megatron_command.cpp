#include <cstdio>

#include "src/app/commands/commands.hpp"
#include "src/app/commands/megatron/launch_report.hpp"

namespace trireme::app {

int megatron_command(const CommandLine& line) {
  std::vector<std::string> words = line.arguments();
  Options options(line.command(),
                  "Translates a launch command of Megatron-LM, flag by flag, and prints the equivalent command of this "
                  "program. Runs nothing. The exit code is 2 if a flag is refused.");
  options.add_arguments("WORD", &words,
                        "Words of the launch: torchrun --nproc_per_node 8 pretrain_gpt.py --lr 1e-4 ...");
  if ((words.empty() || asks_for_help({words.front()})) && !line.read(options)) return 0;
  const megatron::LaunchReport report = megatron::report_on_launch(words);
  std::fwrite(report.text.data(), 1, report.text.size(), stdout);
  return static_cast<int>(report.runs ? ExitCode::success : ExitCode::usage);
}

}  // namespace trireme::app
