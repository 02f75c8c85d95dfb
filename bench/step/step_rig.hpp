#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/comm/self_communicator.hpp"
#include "src/data/dataset/sample_source.hpp"
#include "src/infer/decoder.hpp"
#include "src/plan/cost/observed_backend.hpp"
#include "src/train/trainer.hpp"

namespace trireme::bench {

using namespace plan;

/// A training step without recomputation, in bf16 with fp32 master weights and gradients; or a step of generation.
struct StepCase {
  std::string model;                              ///< preset, or "tiny"
  std::optional<model::ModelConfig> config = {};  ///< instead of the model's; has its own dropout
  DType dtype = DType::bf16;
  std::int64_t s = 1024, b = 1;
  int micro_batches = 1;
  bool graphs = false;
  int tensor_ranks = 1;  ///< number of ranks; this is the first
  bool sequence_parallel = false;
  int row_chunks = 1;
  DType moments = DType::fp32;  ///< type of both moments of AdamW
  optim::OptimizerKind optimizer = optim::OptimizerKind::adam;
  int data_ranks = 1;    ///< number of ranks that keep shards of the optimizer's state; this is the first
  double dropout = 0.1;  ///< probability, for hidden states and attention
  bool decodes = false;  ///< appends the last token to each of b texts of s positions
  bool fp8 = false;      ///< products of layers in FP8, with gradients in e5m2 and delayed scales
};

/// "gpt2-8.3b-scaling, micro-batch 8, 1 of 8 tensor ranks, sequence parallel"
std::string to_string(const StepCase& c);
/// The case as fields of a JSON object, without braces.
std::string json_fields(const StepCase& c);

model::ModelConfig config_of(const StepCase& c);

/// Steps with published predictions: GPT-2 1.2B, 124M, and a rank of 8.3B in tensor parallelism without and with
/// sequence parallelism; and GPT-2 1.2B in FP8.
std::vector<StepCase> predicted_cases();
/// Steps of generation by Llama 2 7B.
std::vector<StepCase> decoding_cases();

/// A training rank. Other tensor and data ranks do not exist: communication takes no time and transfers nothing, so
/// only this rank's work counts. Gathers replicate its own part.
class StepRig {
 public:
  /// Wraps a communicator of the rank's.
  using Wrap = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;
  /// `devices` has the rank's groups; both must outlive this object. `wrap`, if any, is for the tensor group.
  StepRig(const StepCase& c, ObservedBackend& backend, Communicator& devices, const Wrap& wrap = {});
  ~StepRig();

  /// Initialises random weights by the model's rule.
  void initialise();
  /// One update.
  train::TrainRecord step();
  /// One update, or a token more of each text and the logits after it; at most two of these.
  void advance();
  train::ParallelModel& model() { return *model_; }

 private:
  std::unique_ptr<Communicator> world_;  // the data ranks
  parallel::ProcessGrid grid_;
  parallel::GridCommunicators communicators_;
  std::unique_ptr<train::ParallelModel> model_;
  std::unique_ptr<train::Trainer> trainer_;
  std::unique_ptr<data::SampleSource> samples_;
  StepCase case_;
  std::optional<infer::Decoder> decoder_;  // empty before the first step of generation
};

}  // namespace trireme::bench
