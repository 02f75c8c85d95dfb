#include <cstdio>
#include <filesystem>

#include "src/app/command_table.hpp"
#include "src/app/commands/commands.hpp"
#include "src/app/options/text_files.hpp"

namespace trireme::app {

int completion_command(const CommandLine& line) {
  std::string shell;
  Options options(line.command(),
                  "Prints a shell script that completes commands, options and their values. In bash: source <(trireme "
                  "completion bash). In zsh: write it to a file _trireme in a folder of fpath.");
  options.add_argument("SHELL", &shell, "bash or zsh.");
  if (!line.read(options)) return 0;
  TRIREME_CHECK(shell == "bash" || shell == "zsh", ConfigError, "SHELL {} is not one of bash, zsh", shell);
  const ProgramManual manual = program_manual();
  const std::string script = shell == "bash" ? bash_completion(manual) : zsh_completion(manual);
  std::fwrite(script.data(), 1, script.size(), stdout);
  return 0;
}

int man_command(const CommandLine& line) {
  std::string folder;
  Options options(
      line.command(),
      "Writes manual pages of the program and of each command, from their help: trireme.1, trireme-train.1 and "
      "others. Installed programs include them.");
  options.add("output", &folder, "DIR", "Folder for the pages; created if missing.");
  options.require({"output"});
  if (!line.read(options)) return 0;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  TRIREME_CHECK(!error, IoError, "--output {}: cannot be created: {}", folder, error.message());
  const ProgramManual manual = program_manual();
  write_text_file("output", folder + "/trireme.1", man_page(manual, ""));
  for (const CommandManual& command : manual.commands) {
    if (!command.subcommands.empty()) continue;
    write_text_file("output", fmt::format("{}/{}.1", folder, man_page_name(command.path)),
                    man_page(manual, command.path));
  }
  return 0;
}

}  // namespace trireme::app
