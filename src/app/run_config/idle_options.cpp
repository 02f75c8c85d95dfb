#include "src/app/run_config/idle_options.hpp"

#include <algorithm>
#include <string_view>

namespace trireme::app {

std::vector<std::string> idle_options(const Options& options, const parallel::ProcessGrid& grid, DType dtype,
                                      const SampleKind& samples) {
  const auto values = options.values();
  const auto value_of = [&](std::string_view name) -> std::string_view {
    const auto found = std::ranges::find_if(values, [&](const auto& option) { return option.first == name; });
    return found == values.end() ? std::string_view() : found->second;
  };
  const std::string_view growth = value_of("weight-decay-incr-style");
  struct Rule {
    bool holds;
    const char* reason;
    std::vector<std::string_view> names;
  };
  const Rule rules[] = {
      {value_of("lr-decay-style") == "constant" && value_of("min-lr") != "0", "the rate stays at --lr", {"min-lr"}},
      {(growth == "linear" || growth == "cosine") && value_of("weight-decay") != "0.01",
       "it grows from --start-weight-decay to --end-weight-decay",
       {"weight-decay"}},
      {grid.gradient_size() == 1 && grid.expert_gradient_size() == 1,
       "one data rank",
       {"use-distributed-optimizer", "data-parallel-sharding-strategy", "overlap-grad-reduce", "overlap-param-gather",
        "check-weight-hash-across-dp-replicas-interval"}},
      {grid.gradient_size() == 1 && grid.expert_gradient_size() == 1 && value_of("optimizer-cpu-offload") == "false",
       "one data rank",
       {"ddp-bucket-size"}},
      {grid.pipeline_size() == 1,
       "one pipeline stage",
       {"schedule", "num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage",
        "overlap-p2p-communication", "no-scatter-gather-tensors-in-pipeline"}},
      {grid.tensor_size() == 1,
       "one tensor rank",
       {"sequence-parallel", "no-async-tensor-model-parallel-allreduce", "tp-comm-overlap-chunks",
        "distribute-saved-activations", "no-scatter-gather-tensors-in-pipeline"}},
      {grid.token_group_size() == 1, "one expert rank", {"moe-shared-expert-overlap"}},
      {grid.expert_size() == 1, "one expert rank", {"expert-load-factor"}},
      {value_of("moe-pad-expert-input-to-capacity") == "true",
       "experts are padded to equal loads",
       {"expert-load-factor"}},
      {!samples.has_padding, "running text has no padding", {"variable-seq-lengths"}},
      {!samples.has_conversations, "no corpus holds conversations", {"packed-documents"}},
      {grid.world_size() == 1,
       "one rank",
       {"communicator", "use-nccl-ub", "distributed-timeout-minutes", "startup-timeout-minutes", "log-straggler"}},
      {value_of("tensorboard-dir").empty(),
       "no --tensorboard-dir",
       {"tensorboard-log-interval", "log-timers-to-tensorboard", "log-memory-to-tensorboard",
        "log-validation-ppl-to-tensorboard", "log-world-size-to-tensorboard", "no-log-loss-scale-to-tensorboard",
        "no-log-learning-rate-to-tensorboard"}},
      {value_of("save").empty(), "no --save", {"log-progress"}},
      {value_of("timing-log-level") == "0", "no --timing-log-level", {"timing-log-option"}},
      {value_of("profile") == "false", "no --profile", {"profile-step-start", "profile-step-end", "profile-ranks"}},
      {!options.given("exp-avg-dtype") && !options.given("exp-avg-sq-dtype"),
       "both moments are in fp32",
       {"use-precision-aware-optimizer"}},
      {value_of("fp8-amax-compute-algo") == "most_recent",
       "--fp8-amax-compute-algo most_recent reads only the latest update",
       {"fp8-amax-history-len"}},
      {dtype == DType::bf16,
       "bf16 has no dynamic loss scale",
       {"loss-scale", "initial-loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis"}}};
  std::vector<std::string> idle;
  for (const auto& [name, value] : values) {
    if (!options.requested(name)) continue;
    const auto* rule = std::ranges::find_if(
        rules, [&](const Rule& r) { return r.holds && std::ranges::find(r.names, name) != r.names.end(); });
    if (name == "loss-scale" && value != "0") continue;
    if (rule != std::end(rules)) idle.push_back(fmt::format("--{} ({})", name, rule->reason));
  }
  return idle;
}

}  // namespace trireme::app
