#include <array>

#include "src/app/megatron/flag_table.hpp"
#include "src/app/megatron/reasons.hpp"

namespace trireme::app::megatron {
namespace {
using enum Values;
using enum Kind;

// Flags of Megatron-LM's tasks/main.py, and of its programs that write text.
constexpr auto rows_of_commands = std::to_array<CommandFlag>({
    {"eval", {"eval-micro-batch-size", one, "v2.5-", works, "--micro-batch-size @"}},
    {"eval", {"keep-last", none, "v1.0-", satisfied, why::every_example}},
    {"eval", {"pretrained-checkpoint", one, "v1.0-", works, "--load @"}},
    {"eval", {"train-data", list, "v1.0-", satisfied, why::no_training}},
    {"eval", {"valid-data", list, "v1.0-", works, "--data-path @"}},
    {"finetune", {"eval-micro-batch-size", one, "v2.5-", satisfied, why::every_example}},
    {"finetune", {"finetune", none, "v1.0-", satisfied, why::pretrained}},
    {"finetune", {"keep-last", none, "v1.0-", absent, why::whole_batches}},
    {"generate", {"flash-decode", none, "0.10-", satisfied, why::server}},
    {"generate", {"genfile", one, "2019-v2.5", absent, why::standard_output}},
    {"generate", {"greedy", none, "2019-v2.5", works, "--temperature 0"}},
    {"generate", {"inference-batch-times-seqlen-threshold", one, "23.04-", satisfied, why::server}},
    {"generate", {"inference-max-requests", one, "0.12-", satisfied, why::server}},
    {"generate", {"inference-max-seq-length", one, "0.10-", satisfied, why::server}},
    {"generate", {"max-tokens-to-oom", one, "23.04-", satisfied, why::server}},
    {"generate", {"num-samples", one, "2019-v2.5", absent, why::prompt_lines}},
    {"generate", {"num-tokens-to-generate", one, "0.10-", works, "--max-new-tokens @"}},
    {"generate", {"out-seq-length", one, "2019-", works, "--max-new-tokens @"}},
    {"generate", {"port", one, "23.04-", absent, why::no_server}},
    {"generate", {"recompute", none, "2019-v2.5", satisfied, why::same_text}},
    {"generate", {"sample-input-file", one, "2019-v2.5", absent, why::prompt_lines}},
    {"generate", {"sample-output-file", one, "2019-v2.5", absent, why::standard_output}},
});

}  // namespace

const Flag* find_command_flag(std::string_view command, std::string_view name) {
  for (const CommandFlag& row : rows_of_commands) {
    if (row.command == command && row.flag.name == name) return &row.flag;
  }
  return nullptr;
}

std::span<const CommandFlag> flags_of_commands() { return rows_of_commands; }

}  // namespace trireme::app::megatron
