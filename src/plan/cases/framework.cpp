#include "src/plan/cases/framework.hpp"

#include <algorithm>
#include <cctype>

namespace trireme::plan {
namespace {

/// Kernels of a Megatron-LM layer after 2020, of which the compiler makes bias + GELU and bias + dropout + residual.
/// Forward: two norms (2 each) and two sums with dropout (3.5: a mask has a byte); bias of queries, keys and values 6,
/// context's transposition 2, GELU 8; softmax 2 and dropout 2.5.
/// Backward: norms 3 each, dropout 2.5 each, gradients of residuals 3 each, of biases 2; GELU 12, biases 7; softmax 3
/// and dropout 2.5.
constexpr Framework::Tensors fused_forward{.hidden = 11, .divided = 16, .scores = 4.5};
constexpr Framework::Tensors fused_backward{.hidden = 19, .divided = 19, .scores = 5.5};

Framework megatron_2019() {
  // No fused kernels: each bias, dropout and sum is one; GELU's forward makes two passes. Scores are divided, masked by
  // a product and a sum, and normalised by a kernel each.
  return {.name = "Megatron-LM 2019",
          .forward = {.hidden = 18, .divided = 29, .scores = 10.5},
          .backward = {.hidden = 30, .divided = 35, .scores = 9.5},
          .fused_kernels = false,
          .optimizer_bytes = 66,
          .overlaps_gradients = true};
}
Framework megatron_2020() {
  return {.name = "Megatron-LM 2020", .forward = fused_forward, .backward = fused_backward, .overlaps_gradients = true};
}
Framework megatron_2021() { return {.name = "Megatron-LM 2021", .forward = fused_forward, .backward = fused_backward}; }
Framework deepspeed_2021() {
  // ZeRO-3 (Rajbhandari et al. 2020, arXiv:1910.02054) gathers parameter by parameter.
  Framework framework = megatron_2021();
  framework.name = "DeepSpeed 2021";
  framework.sharding_interference = 0.5;
  framework.one_adapter = true;
  return framework;
}
Framework megatron_2022() {
  return {.name = "Megatron-LM 2022", .forward = fused_forward, .backward = fused_backward, .overlaps_tensor = true};
}
Framework megatron_core() {
  // FlashAttention-2: no scores in memory.
  return {.name = "Megatron-Core",
          .forward = {.hidden = fused_forward.hidden, .divided = fused_forward.divided},
          .backward = {.hidden = fused_backward.hidden, .divided = fused_backward.divided},
          .flash_attention = true,
          .flash_gain = 2,
          .overlaps_gradients = true,
          .overlaps_tensor = true};
}
Framework without_dropout() {
  // llm.c and compiled nanoGPT: no dropout; sums of residuals inside norms or other kernels.
  return {.name = "llm.c",
          .forward = {.hidden = 7, .divided = 10},
          .backward = {.hidden = 12, .divided = 14},
          .flash_attention = true,
          .flash_gain = 2,
          .optimizer_bytes = 34,
          .overlaps_gradients = true};
}
Framework llm_foundry() {
  // No dropout, no biases, GELU unfused; three passes over the logits beside the loss for the metrics.
  return {.name = "llm-foundry",
          .forward = {.hidden = 10, .divided = 10},
          .backward = {.hidden = 16, .divided = 12},
          .flash_attention = true,
          .loss_bytes = 40};
}

bool mentions(const std::string& text, std::string_view word) {
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  return std::search(text.begin(), text.end(), word.begin(), word.end(), same) != text.end();
}

bool is_zero_bubble(const PublishedRun& run) {
  return run.schedule == PublishedSchedule::zero_bubble_1p || run.schedule == PublishedSchedule::zero_bubble_2p;
}

std::string field(const PublishedRun& run, const char* column) {
  const auto found = run.text.find(column);
  return found == run.text.end() ? std::string() : found->second;
}

/// The program, without regard to precision.
Framework program_of(const PublishedRun& run) {
  const std::string source = field(run, "source");
  if (mentions(source, "2401.10241") || mentions(source, "zero-bubble") || mentions(source, "zero bubble") ||
      is_zero_bubble(run)) {
    Framework framework = megatron_2021();
    framework.name = "Megatron-LM of zero-bubble";
    framework.late_messages = is_zero_bubble(run);
    return framework;
  }
  if (mentions(source, "1909.08053")) return megatron_2019();
  if (mentions(source, "2104.04473")) return run.is_fsdp() ? deepspeed_2021() : megatron_2021();
  if (mentions(source, "2205.05198")) return megatron_2022();
  if (mentions(source, "llm-foundry") || mentions(source, "mosaic") || mentions(source, "mpt") || run.is_fsdp()) {
    return llm_foundry();
  }
  if (mentions(source, "llm.c") || mentions(source, "nanogpt")) return without_dropout();
  if (mentions(source, "readme") && (mentions(source, "2019") || mentions(source, "2020"))) return megatron_2020();
  if (mentions(run.cluster, "dgx-2")) return megatron_2020();
  if (run.recomputation == Recomputation::selective) return megatron_2022();
  if (run.recomputation == Recomputation::full && mentions(run.cluster, "a100")) return megatron_2021();
  return megatron_core();
}

}  // namespace

Framework framework_of(const PublishedRun& run) {
  Framework framework = program_of(run);
  // Megatron-LM accumulates and reduces gradients in fp32 where they are bf16.
  const std::string precision = field(run, "precision");
  const bool in_doubt = mentions(precision, "fp16");
  if (mentions(framework.name, "megatron") && mentions(precision, "bf16") && !in_doubt) framework.gradient_bytes = 4;
  return framework;
}

}  // namespace trireme::plan
