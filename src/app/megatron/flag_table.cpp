#include "src/app/megatron/flag_table.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "src/app/megatron/reasons.hpp"
#include "src/base/text.hpp"

namespace trireme::app::megatron {
namespace {
using enum Values;
using enum Kind;

// Flags of Megatron-LM's tasks/main.py, and of its programs that write text.
constexpr auto rows_of_commands = std::to_array<CommandFlag>({
    {"eval", {"eval-micro-batch-size", one, "v2.5-", works, "--micro-batch-size @"}},
    {"eval", {"keep-last", none, "v1.0-", satisfied, why::every_example}},
    {"eval", {"moe-use-upcycling", none, "0.9-", absent, why::upcycling}},
    {"eval", {"pretrained-checkpoint", one, "v1.0-", works, "--load @"}},
    {"eval", {"train-data", list, "v1.0-", satisfied, "nothing is trained"}},
    {"eval", {"valid-data", list, "v1.0-", works, "--data-path @"}},
    {"finetune", {"eval-micro-batch-size", one, "v2.5-", satisfied, why::every_example}},
    {"finetune", {"finetune", none, "v1.0-", satisfied, "begins with the weights of --pretrained-checkpoint"}},
    {"finetune", {"moe-use-upcycling", none, "0.9-", absent, why::upcycling}},
    {"finetune",
     {"keep-last", none, "v1.0-", absent,
      "an epoch has only full batches; nearest: a --global-batch-size that divides the examples"}},
    {"generate", {"flash-decode", none, "0.10-", satisfied, why::server}},
    {"generate", {"genfile", one, "2019-v2.5", works, "--output @"}},
    {"generate", {"greedy", none, "2019-v2.5", works, "--temperature 0"}},
    {"generate", {"inference-batch-times-seqlen-threshold", one, "23.04-", satisfied, why::server}},
    {"generate", {"inference-max-requests", one, "0.12-", satisfied, why::server}},
    {"generate", {"inference-max-seq-length", one, "0.10-", satisfied, why::server}},
    {"generate", {"max-tokens-to-oom", one, "23.04-", satisfied, why::server}},
    {"generate", {"moe-use-upcycling", none, "0.9-", absent, why::upcycling}},
    {"generate", {"num-samples", one, "2019-v2.5", works, "--num-samples @"}},
    {"generate", {"num-tokens-to-generate", one, "0.10-", works, "--max-new-tokens @"}},
    {"generate", {"out-seq-length", one, "2019-", works, "--max-new-tokens @"}},
    {"generate", {"port", one, "23.04-", absent, "there is no server; nearest: --prompt"}},
    {"generate", {"recompute", none, "2019-v2.5", satisfied, "the text is the same"}},
    {"generate", {"sample-input-file", one, "2019-v2.5", absent, why::prompt_lines}},
    {"generate", {"sample-output-file", one, "2019-v2.5", absent, why::standard_output}},
});

bool equal_without_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

std::string hyphenated(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

std::vector<Flag> flags_of(std::initializer_list<std::span<const FlagGroup>> parts) {
  std::vector<Flag> list;
  for (const auto& part : parts) {
    for (const FlagGroup& group : part) {
      for (std::string_view name : split(group.names, ',')) {
        if (name.starts_with(' ')) name.remove_prefix(1);
        list.push_back({name, group.values, group.releases, group.kind, group.text});
      }
    }
  }
  std::ranges::stable_sort(list, {}, [](const Flag& flag) { return flag.name.substr(0, flag.name.find(" --")); });
  return list;
}

const std::vector<Flag>& all_flags() {
  static const std::vector<Flag> flags = flags_of({flags_that_work(), flags_satisfied(), flags_refused()});
  return flags;
}

const Flag* find_flag(const std::vector<Flag>& flags, std::string_view name, std::string_view value) {
  const Flag* of_prefix = nullptr;
  const Flag* found = nullptr;
  const Flag* of_value = nullptr;
  for (const Flag& flag : flags) {
    if (flag.name == name) found = &flag;
    if (flag.name.ends_with('*') && name.starts_with(flag.name.substr(0, flag.name.size() - 1))) of_prefix = &flag;
    const bool names_value =
        flag.name.size() > name.size() + 1 && flag.name.starts_with(name) && flag.name[name.size()] == ' ';
    if (names_value && equal_without_case(flag.name.substr(name.size() + 1), value)) of_value = &flag;
  }
  return of_value != nullptr ? of_value : found != nullptr ? found : of_prefix;
}

const Flag* find_command_flag(std::string_view command, std::string_view name) {
  const auto row = std::ranges::find_if(
      rows_of_commands, [&](const CommandFlag& row) { return row.command == command && row.flag.name == name; });
  return row == rows_of_commands.end() ? nullptr : &row->flag;
}

std::span<const CommandFlag> flags_of_commands() { return rows_of_commands; }

}  // namespace trireme::app::megatron
