#include "src/plan/cases/framework.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "src/base/check.hpp"

namespace trireme::plan {
namespace {

/// Kernels of a Megatron-LM layer after 2020, with compiler-fused bias + GELU and bias + dropout + residual. Forward:
/// two norms (2 each) and two sums with dropout (3.5: a mask has a byte); bias of queries, keys and values 6, context's
/// transposition 2, GELU 8; softmax 2 and dropout 2.5. Backward: norms 3 each, dropout 2.5 each, gradients of residuals
/// 3 each, of biases 2; GELU 12, biases 7; softmax 3 and dropout 2.5.
constexpr Framework::Tensors fused_forward{.hidden = 11, .divided = 16, .scores = 4.5};
constexpr Framework::Tensors fused_backward{.hidden = 19, .divided = 19, .scores = 5.5};

constexpr auto frameworks = std::to_array<Framework>({
    // ZeRO-3 (Rajbhandari et al. 2020, arXiv:1910.02054) gathers parameter by parameter.
    {.name = "deepspeed",
     .forward = fused_forward,
     .backward = fused_backward,
     .fp32_gradients = false,
     .sharding_interference = 0.5,
     .one_adapter = true,
     .schedules = {"zero-3", "zero3", "zero 3", "deepspeed"}},
    // llm-foundry: no dropout, no biases, GELU unfused; three passes over the logits for the metrics besides the loss.
    {.name = "fsdp",
     .forward = {.hidden = 10, .divided = 10},
     .backward = {.hidden = 16, .divided = 12},
     .flash_attention = 1,
     .loss_bytes = 40,
     .fp32_gradients = false,
     .schedules = {"fsdp", "shard"}},
    // Megatron-Core.
    {.name = "megatron",
     .forward = {.hidden = fused_forward.hidden, .divided = fused_forward.divided},
     .backward = {.hidden = fused_backward.hidden, .divided = fused_backward.divided},
     .flash_attention = 2,
     .overlaps_gradients = true,
     .overlaps_tensor = true},
    // One kernel per bias, dropout and sum; GELU's forward takes two passes. Scores are divided, masked by a product
    // and a sum, and normalised by separate kernels.
    {.name = "megatron-2019",
     .forward = {.hidden = 18, .divided = 29, .scores = 10.5},
     .backward = {.hidden = 30, .divided = 35, .scores = 9.5},
     .fused_kernels = false,
     .optimizer_bytes = 66,
     .overlaps_gradients = true},
    {.name = "megatron-2020", .forward = fused_forward, .backward = fused_backward, .overlaps_gradients = true},
    {.name = "megatron-2021",
     .forward = fused_forward,
     .backward = fused_backward,
     .schedules = {"zb", "zero bubble", "zero-bubble"}},
    // Selective recomputation came with sequence parallelism (Korthikanti et al. 2022, arXiv:2205.05198).
    {.name = "megatron-2022",
     .forward = fused_forward,
     .backward = fused_backward,
     .overlaps_tensor = true,
     .selective_is_sequence_parallel = true},
    // llm.c and compiled nanoGPT: no dropout; sums of residuals inside norms or other kernels.
    {.name = "llm.c",
     .forward = {.hidden = 7, .divided = 10},
     .backward = {.hidden = 12, .divided = 14},
     .flash_attention = 2,
     .optimizer_bytes = 34,
     .fp32_gradients = false,
     .overlaps_gradients = true},
});

}  // namespace

const Framework& find_framework(std::string_view name) {
  const auto* found = std::ranges::find(frameworks, name, &Framework::name);
  TRIREME_CHECK(found != frameworks.end(), ConfigError, "'{}' is not one of {}", name,
                fmt::join(frameworks | std::views::transform(&Framework::name), ", "));
  return *found;
}

const Framework& framework_of_schedule(std::string_view schedule) {
  const auto implies = [&](std::string_view word) { return !word.empty() && schedule.find(word) != schedule.npos; };
  const auto* found = std::ranges::find_if(
      frameworks, [&](const Framework& framework) { return std::ranges::any_of(framework.schedules, implies); });
  return found == frameworks.end() ? find_framework("megatron") : *found;
}

}  // namespace trireme::plan
