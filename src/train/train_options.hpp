#pragma once

#include <cstdint>
#include <optional>

#include "src/base/attributes.hpp"
#include "src/base/check.hpp"
#include "src/model/blocks/recomputation.hpp"
#include "src/model/model_config.hpp"
#include "src/optim/loss_scaler.hpp"
#include "src/optim/lr_schedule.hpp"
#include "src/optim/make_optimizer.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/pipeline/pipeline_layout.hpp"
#include "src/parallel/tensor/fp8_scaling.hpp"
#include "src/train/batch_schedule.hpp"
#include "src/train/guards/guard_options.hpp"

namespace trireme::train {

/// Distribution of a model over the ranks of a grid, and their communication.
struct ParallelConfig {
  bool sequence_parallel = false;       ///< splits the residual stream over the tensor ranks; ignored with one of them
  int row_chunks = 1;                   ///< TensorContext::row_chunks; ignored with one tensor rank
  bool async_tensor_all_reduce = true;  ///< overlaps backward's tensor-parallel collectives with its GEMMs
  bool exchange_tokens = false;         ///< TensorContext::exchange_tokens
  double expert_load = 1;               ///< TensorContext::expert_load
  bool overlap_shared_expert = false;   ///< TensorContext::overlap_shared_expert
  bool pad_experts = false;             ///< TensorContext::pad_experts
  parallel::PipelineSplit pipeline;     ///< layers of each stage
  std::optional<parallel::ScheduleKind> schedule;  ///< default: 1F1B, interleaved with several chunks per rank
  bool overlap_p2p = false;                        ///< overlaps messages between stages with computation
  bool registered_buffers = false;                 ///< Communicator::buffers for tensor and gradient groups
  bool scatter_gather = true;                      ///< each tensor rank sends its shard of a message between stages
  parallel::DataParallelOptions data_parallel;     ///< training only
};

/// TensorContext::row_chunks of a run with `tensor_size` tensor ranks.
inline int row_chunks_of(const ParallelConfig& config, int tensor_size) {
  return tensor_size > 1 ? config.row_chunks : 1;
}

constexpr Choice<parallel::Fp8Recipe> fp8_recipes[] = {{"delayed", parallel::Fp8Recipe::delayed},
                                                       {"tensorwise", parallel::Fp8Recipe::tensorwise},
                                                       {"blockwise", parallel::Fp8Recipe::blockwise}};

/// Execution of a model in training, evaluation and generation.
struct ExecutionConfig {
  DType dtype = DType::fp32;
  std::int64_t sequence_length = 1024;
  std::int64_t micro_batch_size = 1;
  std::int64_t vocabulary_multiple = 128;   ///< pads the vocabulary to a multiple of this times the tensor ranks
  std::int64_t padded_vocabulary_size = 0;  ///< 0: from the multiple
  model::Recomputation recomputation;       ///< training only
  std::int64_t cross_entropy_chunks = 1;    ///< chunks of a micro-batch's rows in the output layer and the loss
  std::int64_t max_predictions = 0;         ///< BERT: masked tokens of a sample at most; 0: as many as positions
  bool cuda_graphs = false;                 ///< records and replays training steps (RecordedStage)
  bool trains = true;                       ///< otherwise parameters have no gradients, except adapters
  /// Training micro-batches end with their longest sample; otherwise all have sequence_length positions.
  bool variable_lengths = false;
  ParallelConfig parallel;
  parallel::Fp8Options fp8{};  ///< training and its evaluations
};

/// Throws ConfigError for values that exclude each other.
inline void validate(const ExecutionConfig& config) {
  const parallel::DataParallelOptions& data = config.parallel.data_parallel;
  parallel::validate(data, config.dtype);
  const std::int64_t rows = config.sequence_length * config.micro_batch_size;
  TRIREME_CHECK(
      config.cross_entropy_chunks == 1 || (config.cross_entropy_chunks > 1 && config.cross_entropy_chunks <= rows),
      ConfigError, "<cross_entropy_chunks> {} must be from 1 to the {} tokens of a micro-batch",
      config.cross_entropy_chunks, rows);
  TRIREME_CHECK(
      !config.cuda_graphs || !data.overlap_reduce || data.sharding != parallel::DataSharding::optimizer_and_gradients,
      ConfigError,
      "<cuda_graphs> does not support <overlap_grad_reduce> with ZeRO 2, which reduces gradients after every "
      "micro-batch: recorded work cannot wait for work outside the graph. Try ZeRO 1.");
  TRIREME_CHECK(!config.cuda_graphs || !config.variable_lengths, ConfigError,
                "<cuda_graphs> and <variable_seq_lengths> exclude each other: recorded work has one length");
  const model::Recomputation& recomputation = config.recomputation;
  TRIREME_CHECK(!config.cuda_graphs || recomputation.offloaded_layers == 0, ConfigError,
                "<cuda_graphs> and <cpu_offloading_num_layers> exclude each other: recorded work cannot wait for "
                "copies outside the graph");
  TRIREME_CHECK(
      recomputation.offloaded_layers == 0 || recomputation.granularity != model::RecomputeGranularity::full ||
          recomputation.method == model::RecomputeMethod::block,
      ConfigError,
      "<cpu_offloading_num_layers> {} with <recompute_granularity> full: every layer is recomputed and keeps no "
      "activations to offload. Give <recompute_method> block, or <recompute_granularity> selective or none.",
      recomputation.offloaded_layers);
}

/// Throws ConfigError for values that exclude each other, or that `model` does not support with its experts divided
/// over `expert_size` ranks, and split over others than the tensor ranks if `folds_experts`.
inline void validate(const ExecutionConfig& config, const model::ModelConfig& model, int expert_size,
                     bool folds_experts) {
  validate(config);
  const std::int64_t experts = model.experts.count;
  TRIREME_CHECK(
      !config.cuda_graphs || experts == 0 || config.parallel.pad_experts, ConfigError,
      "<cuda_graphs>: the number of tokens of each expert depends on the data, and recorded work has fixed sizes. Give "
      "<moe_expert_capacity_factor> and <moe_pad_expert_input_to_capacity>, or leave out <cuda_graphs>.");
  TRIREME_CHECK(!config.parallel.pad_experts || experts > 0, ConfigError,
                "<moe_pad_expert_input_to_capacity>: the model has no experts. Leave it out.");
  TRIREME_CHECK(
      !config.parallel.pad_experts || model.experts.capacity_factor > 0, ConfigError,
      "<moe_pad_expert_input_to_capacity> needs <moe_expert_capacity_factor>: the number of rows of an expert");
  TRIREME_CHECK(!config.variable_lengths || !model.counts_padding(), ConfigError,
                "<variable_seq_lengths> would change the training: padding counts in the experts' balance losses "
                "(<moe_aux_loss_coeff>), z-loss (<moe_z_loss_coeff>), capacities (<moe_expert_capacity_factor>) and "
                "moving biases (<moe_router_enable_expert_bias>). Leave it out.");
  TRIREME_CHECK(!config.parallel.overlap_shared_expert || experts > 0, ConfigError,
                "<moe_shared_expert_overlap>: the model has no experts. Leave it out.");
  TRIREME_CHECK(!config.parallel.overlap_shared_expert || model.experts.shared_hidden > 0, ConfigError,
                "<moe_shared_expert_overlap> needs <moe_shared_expert_intermediate_size>: the model has no shared "
                "expert");
  TRIREME_CHECK(!config.recomputation.selected().experts || experts > 0, ConfigError,
                "<recompute_modules> moe: the model has no experts. Leave it out.");
  TRIREME_CHECK(!config.parallel.registered_buffers || experts == 0, ConfigError,
                "<use_nccl_ub> excludes experts: ranks with other tokens allocate other memory. Leave it out.");
  TRIREME_CHECK(!folds_experts || experts > 0, ConfigError,
                "<expert_tensor_parallel_size>: the model has no experts. Leave it out.");
  TRIREME_CHECK(!folds_experts || config.parallel.row_chunks == 1 || !config.parallel.sequence_parallel, ConfigError,
                "<tp_comm_overlap_chunks> {} with <sequence_parallel> needs <expert_tensor_parallel_size> equal to "
                "<tensor_model_parallel_size>: tensor ranks that divide the tokens for experts hold consecutive ones",
                config.parallel.row_chunks);
  TRIREME_CHECK(!folds_experts || !config.variable_lengths, ConfigError,
                "<variable_seq_lengths> needs <expert_tensor_parallel_size> equal to <tensor_model_parallel_size>: "
                "ranks that divide the tokens for experts need micro-batches of equal length");
  if (expert_size == 1) return;
  TRIREME_CHECK(experts > 0, ConfigError, "<expert_model_parallel_size> {}: the model has no experts. Leave it out.",
                expert_size);
  TRIREME_CHECK(experts % expert_size == 0, ConfigError,
                "<expert_model_parallel_size> {} does not divide the {} experts of a layer", expert_size, experts);
  TRIREME_CHECK(!config.variable_lengths, ConfigError,
                "<expert_model_parallel_size> and <variable_seq_lengths> exclude each other: ranks that divide experts "
                "exchange tokens, and need micro-batches of equal length");
}

/// Throws ConfigError for products in FP8 that `model` or the grid does not support: extents of a rank's operands must
/// be multiples of 16, as cuBLASLt needs, or of fp8_block if blocks have scales. No shard then cuts a block.
void validate_fp8(const ExecutionConfig& config, const model::ModelConfig& model, int tensor_size, int context_size);

/// Definition of the loss of a global batch. `tokens`: the mean over all its counted tokens, independent of the
/// micro-batch size. `micro_batch`: the mean over its micro-batches of their means over tokens, as in Megatron-LM.
enum class LossAverage { tokens, micro_batch };

/// Largest and smallest learning rate of a schedule that otherwise equals the run's.
struct DecoupledRate {
  double maximum = 0;
  double minimum = 0;
};

/// Treatment of documents that share a sample of running text. The corpus' offsets delimit them.
struct DocumentOptions {
  bool reset_position_ids = false;    ///< positions count from the start of each document
  bool reset_attention_mask = false;  ///< no token attends to other documents
  bool conversations_apart = false;   ///< both hold for conversations, whatever the text's; done by the sample source
  bool eod_mask_loss = false;         ///< the last token of a document predicts nothing; done by the sample source
};

/// Options that determine the updates of a run, in addition to its data and grid.
struct TrainOptions {
  std::int64_t global_batch_size = 1;
  std::optional<BatchGrowth> ramp_up;
  bool decrease_batch_size = false;  ///< rounds batches down to a multiple of micro-batch size x data ranks
  LossAverage loss_average = LossAverage::tokens;
  DocumentOptions documents;
  std::uint64_t seed = 1234;  ///< seeds initial weights and dropout
  optim::LrSchedule lr_schedule;
  optim::OptimizerOptions optimizer;
  std::optional<optim::WeightDecayRamp> weight_decay_ramp;  ///< replaces the optimizer's weight decay
  std::optional<DecoupledRate> decoupled_rate;              ///< rate of the token embedding and the output layer
  double clip_grad = 1;                                     ///< largest gradient norm; 0: no clipping
  int grad_norm_power = 2;                                  ///< p of that norm, or optim::infinity_norm
  optim::LossScalerOptions loss_scale;                      ///< dynamic in fp16
  int max_skipped = 10;  ///< skipped updates in a row that end the run; with a dynamic scale, at its minimum
  GuardOptions guards{};
};

/// Returns the schedule with the rates of `rate`.
inline optim::LrSchedule decoupled(optim::LrSchedule schedule, const DecoupledRate& rate) {
  schedule.maximum = rate.maximum;
  schedule.minimum = rate.minimum;
  return schedule;
}

/// Returns the options as the attributes "optimizer" and "training.*" of a checkpoint. A later run compares them with
/// its own as text, and reads only the optimizer's kind back (`optim::optimizer_from`).
Attributes attributes_of(const TrainOptions& options);
/// Returns the options of products in FP8 as the attributes "training.fp8-*" of a checkpoint; none if they are unused.
Attributes attributes_of(const parallel::Fp8Options& options);
/// Reads the decoupled rate from those attributes.
std::optional<DecoupledRate> decoupled_rate_from(const Attributes& attributes);

}  // namespace trireme::train
