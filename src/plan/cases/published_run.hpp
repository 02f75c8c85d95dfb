#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/plan/cases/framework.hpp"

namespace trireme::plan {

enum class Recomputation { none, selective, full };
/// Distribution of a data group's state. gradients: parameters are gathered once per micro-batch (SHARD_GRAD_OP); full:
/// in forward and again in backward (ZeRO-3, FULL_SHARD).
enum class Sharding { none, optimizer, gradients, full };
/// Pipeline schedules of published runs. zero_bubble_1p and _2p: of Qi et al. 2023 (arXiv:2401.10241), with the memory
/// of 1F1B and twice that.
enum class PublishedSchedule { one_forward_one_backward, interleaved, gpipe, zero_bubble_1p, zero_bubble_2p };
/// FLOPs that a row's TFLOP/s count, of B sequences of s tokens on l layers of width h and V words. Formulas are those
/// of GPT's layers; with other widths, gates or experts, the matrices that compute a token replace 12 h^2.
enum class FlopConvention {
  model,            ///< 72 B s l h^2 (1 + s / 6h + V / 12lh), no recomputation
  with_recompute,   ///< 96 B s l h^2 (1 + s / 6h + V / 16lh) (Narayanan et al. 2021, arXiv:2104.04473, equation 3)
  hardware,         ///< those of `model`, plus the run's actual recomputation
  six_n,            ///< 6 B s N, N the parameters
  six_n_attention,  ///< B s (6 N + 12 l h s), N the parameters
};

/// Name of a convention in results: "96 B s l h^2 ..., with recomputation".
const char* name_of(FlopConvention convention);

/// Experts of every layer of a published run.
struct PublishedExperts {
  std::int64_t count = 0;  ///< 0: dense layers
  std::int64_t per_token = 2;
  std::int64_t hidden = 0, shared_hidden = 0;  ///< width of one, and of the shared one
  int ep = 1, etp = 1;  ///< expert ranks, and tensor ranks that split each expert (Megatron-Core's folding: not tp)

  bool any() const { return count > 0; }
};

/// A training run as published in a table.
struct PublishedRun {
  int line = 0;
  std::map<std::string, std::string> text;  ///< the row's fields by column

  Framework framework;  ///< the program
  std::string cluster;  ///< a name of published_cluster
  int layers = 1;
  std::int64_t hidden = 0, heads = 0, vocabulary = 0, sequence = 0;
  std::int64_t kv_heads = 0, ffn_hidden = 0;
  bool llama = false;  ///< gated blocks, RMSNorm, rotary positions; no biases, dropout or tied table
  PublishedExperts experts;
  int gpus = 1, tp = 1, pp = 1, dp = 1;
  int chunks = 1;  ///< virtual stages of a pipeline rank
  std::int64_t micro_batch = 1, global_batch = 1;
  bool fp8 = false, bf16 = false;
  bool sequence_parallel = false;
  Recomputation recomputation = Recomputation::none;
  Sharding sharding = Sharding::none;
  PublishedSchedule schedule = PublishedSchedule::one_forward_one_backward;
  FlopConvention convention = FlopConvention::model;
  std::optional<double> iter_s, tflops_gpu;  ///< as published

  /// Micro-batches of an update on a data rank; the last one may be smaller.
  int micro_batches() const;
  /// Bytes of a gradient in the reduction over data ranks.
  double gradient_bytes() const { return bf16 && framework.fp32_gradients ? 4 : 2; }
  /// Data ranks with the same experts.
  int expert_dp() const { return gpus / (pp * experts.ep * experts.etp); }
  /// Width of keys and values.
  double kv_width() const {
    return static_cast<double>(hidden) / static_cast<double>(heads) * static_cast<double>(kv_heads);
  }
  /// Elements of the matrices of a block of this width, over `hidden`.
  double block_matrices(std::int64_t width) const { return (llama ? 3.0 : 2.0) * static_cast<double>(width); }
  /// Elements of a layer's matrices outside its experts, and of one expert.
  double dense_parameters() const;
  double expert_parameters() const { return block_matrices(experts.hidden) * static_cast<double>(hidden); }
  /// Elements of all embeddings.
  double embedding_parameters() const;
  bool is_fsdp() const { return sharding == Sharding::gradients || sharding == Sharding::full; }
  /// FLOPs of an update on all GPUs in the row's convention.
  double flops() const;
  /// Seconds of an update as published, or from the published TFLOP/s; empty with neither.
  std::optional<double> published_seconds() const;
};

/// A row: a run, or the reason why it is invalid.
struct PublishedRow {
  int line = 0;
  std::optional<PublishedRun> run;
  std::string error;  ///< "FILE, line 3, column gbs: ..."; empty with a run
};

/// Rows of a CSV text with the columns model, hidden, layers, heads, vocab, seq, hardware, gpus, tp, pp, dp, mbs, gbs,
/// precision, recompute, schedule, layers_per_virtual_stage, program, source, iter_s, tflops_gpu, tflops_def, style,
/// kv_heads, ffn, experts, topk, moe_ffn, shared_ffn, ep and etp, in any order; others are kept as text. DataError if
/// the text is not CSV or a required column is missing.
std::vector<PublishedRow> parse_published_runs(const std::string& name, const std::string& text);

}  // namespace trireme::plan
