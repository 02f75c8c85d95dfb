#pragma once

#include "src/data/dataset/sample_source.hpp"
#include "src/model/stage/transformer_stage.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/grid/process_grid.hpp"
#include "src/train/train_options.hpp"

namespace trireme::train {

/// Returns a micro-batch of `b` samples of `s` positions with these optional fields, for training in `dtype`. Only its
/// types and shapes are valid.
model::MicroBatch unseen_micro_batch(const data::SampleFields& fields, std::int64_t s, std::int64_t b, DType dtype);

/// Rehearsal of one chunk of a pipeline stage with one micro-batch, on a rehearsal backend. Represents rank 0 of
/// its tensor, context and expert group; other ranks do not exist.
class StageRehearsal {
 public:
  struct Layers {
    int layers = 1;
    bool first = false;  ///< with the embedding
    bool last = false;   ///< with the head
  };
  /// The groups are those of `grid`. All arguments except it and `layers` must outlive the rehearsal.
  StageRehearsal(Backend& backend, Communicator& tensor_group, Communicator& context_group, Communicator& expert_group,
                 const parallel::ProcessGrid& grid, const model::ModelConfig& config, const ExecutionConfig& execution,
                 const Layers& layers);

  /// Runs a step. A forward must precede its backward, and a backward_input its backward_weight.
  void run(parallel::StepKind kind);

  /// Bytes kept for backward.
  std::size_t activation_bytes() const { return stage_.activations().used_bytes(); }
  /// Positions of every sequence on this context rank.
  std::int64_t positions() const { return sequence_.rows; }
  /// Bytes of a message to another chunk, before it is split over tensor ranks.
  std::size_t boundary_bytes() const {
    return static_cast<std::size_t>(stage_.boundary_shape(0).numel()) * size_of(stage_.boundary_dtype());
  }
  /// Number of parameters, including padding.
  std::int64_t parameter_elements() const { return parameters_.values().numel(); }
  std::int64_t logits_columns() const { return vocabulary_.rows(); }

 private:
  model::StageMode mode_;
  parallel::SequenceShard sequence_;
  parallel::VocabularyPartition vocabulary_;
  Arena workspace_;
  model::StageShard shard_;
  parallel::ParameterBuffer parameters_;
  std::unique_ptr<parallel::Fp8Scaling> fp8_;
  model::TransformerStage stage_;
};

}  // namespace trireme::train
