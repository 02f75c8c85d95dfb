#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/model/layers/recomputation.hpp"
#include "src/optim/loss_scaler.hpp"
#include "src/optim/lr_schedule.hpp"
#include "src/optim/make_optimizer.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/pipeline/pipeline_layout.hpp"
#include "src/train/batch_schedule.hpp"

namespace trireme::train {

/// How a model is cut into micro-batches and numbers: what training, evaluation and generation have in common.
struct ParallelConfig {
  DType dtype = DType::fp32;
  std::int64_t sequence_length = 1024;
  std::int64_t micro_batch_size = 1;
  std::int64_t vocabulary_multiple = 128;          ///< rows of the vocabulary are padded to a multiple of this times TP
  std::int64_t padded_vocabulary_size = 0;         ///< 0: by the multiple
  bool sequence_parallel = false;                  ///< the residual stream is cut over the tensor ranks; idle with TP 1
  bool async_tensor_all_reduce = true;             ///< tensor-parallel collectives of backward run behind its products
  model::Recomputation recomputation;              ///< of training
  parallel::PipelineSplit pipeline;                ///< how the layers are shared out over the stages
  std::optional<parallel::ScheduleKind> schedule;  ///< default: 1F1B, interleaved with several chunks a rank
  bool overlap_p2p = false;                        ///< messages between stages travel while ranks compute
  bool scatter_gather = true;                      ///< each tensor rank sends its part of a message between stages
  parallel::DataParallelOptions data_parallel;     ///< of training
  bool cuda_graphs = false;                        ///< training's steps are recorded and replayed (MicroBatchGraphs)
};

/// Definition of the loss of a global batch. `tokens`: the mean over all of its tokens that count, so that the
/// micro-batch size does not matter. `micro_batch`: the mean over its micro-batches of their means over tokens
/// (Megatron-LM's).
enum class LossAverage { tokens, micro_batch };

/// Options that the updates of a run depend on, beside its data and its grid.
struct TrainOptions {
  std::int64_t global_batch_size = 1;
  std::optional<BatchRampUp> ramp_up;
  bool decrease_batch_size = false;  ///< round batches down to what micro-batch size and data ranks can do
  LossAverage loss_average = LossAverage::tokens;
  std::uint64_t seed = 1234;  ///< of initial weights and dropout
  optim::LrSchedule lr_schedule;
  optim::OptimizerOptions optimizer;
  double clip_grad = 1;                 ///< largest gradient norm; 0: no clipping
  optim::LossScalerOptions loss_scale;  ///< dynamic in fp16
  int max_skipped = 10;  ///< skipped updates in a row that end the run; with a dynamic scale, at its minimum
};

}  // namespace trireme::train
