#pragma once

#include "src/comm/self_communicator.hpp"
#include "src/data/dataset/gpt_samples.hpp"
#include "src/model/initialisation.hpp"
#include "src/train/trainer.hpp"
#include "tests/fakes/memory_token_store.hpp"
#include "tests/support/bert_samples.hpp"
#include "tests/support/model_variants.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::train {

inline model::ModelConfig small_config() {
  return {.layers = 3,
          .hidden = 32,
          .heads = 4,
          .ffn_hidden = 128,
          .max_positions = 16,
          .vocabulary = 50,
          .hidden_dropout = 0,
          .attention_dropout = 0};
}

inline model::ModelConfig small_config(const test::ModelVariant& variant, double dropout) {
  model::ModelConfig config = small_config();
  config.hidden_dropout = dropout;
  config.attention_dropout = dropout;
  variant.apply(config);
  return config;
}

inline const double same_loss = test::tolerance(DType::fp64, test::Comparison::other_average).loss;

/// Model on one rank.
struct Rig {
  explicit Rig(const ExecutionConfig& layout, const model::ModelConfig& config = small_config(), double std = 0.02)
      : gpt(*backend, world, grid, communicators, config, layout) {
    model::Initialisation initial;
    initial.layers = config.layers;
    initial.std = std;
    model::initialise(*backend, gpt.parameters().parameters(), initial);
    // B of adapters begins at 0, so that nothing would depend on A.
    std::vector<parallel::Parameter> outputs;
    std::ranges::copy_if(gpt.parameters().parameters(), std::back_inserter(outputs), [](const auto& parameter) {
      return parameter.role == parallel::ParameterRole::adapter_outputs;
    });
    initial.method = model::InitMethod::hashed_uniform;
    model::initialise(*backend, outputs, initial);
  }
  SelfCommunicator world;
  parallel::ProcessGrid grid{1, 1, 1};
  std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  parallel::GridCommunicators communicators = parallel::make_grid_communicators(grid, world);
  ParallelModel gpt;
};

inline ExecutionConfig layout_of(DType dtype, std::int64_t s, std::int64_t b) {
  ExecutionConfig layout;
  layout.dtype = dtype;
  layout.sequence_length = s;
  layout.micro_batch_size = b;
  return layout;
}

/// Returns options whose learning rate falls from `maximum` in `decay` updates.
inline TrainOptions train_options(std::int64_t global_batch, double maximum = 1e-3, std::int64_t decay = 10) {
  TrainOptions options;
  options.global_batch_size = global_batch;
  options.lr_schedule.maximum = maximum;
  options.lr_schedule.decay = decay;
  return options;
}

inline data::MemoryTokenStore counting_corpus(std::int64_t tokens) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<std::int32_t>(i * 7 % 50));
  data::CorpusInfo info;
  info.tokenizer = "formula";
  info.vocabulary_size = 50;
  return {info, std::vector<std::vector<std::int32_t>>{ids}};
}

/// Samples given by a formula, by default of 16 positions.
class FormulaSamples final : public data::NextTokenSamples {
 public:
  explicit FormulaSamples(std::int64_t length = 16) : length_(length) {}
  std::int64_t size() const override { return 1000; }
  std::int64_t sequence_length() const override { return length_; }
  void read_text(std::int64_t index, std::span<std::int32_t> tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>((static_cast<std::size_t>(index) * 5 + i * 3) % 50);
    }
  }

 private:
  std::int64_t length_;
};

/// Returns samples of 16 positions for any model, and a loader of micro-batches of `b` such samples.
inline std::unique_ptr<data::SampleSource> formula_samples(const model::ModelConfig& config) {
  if (config.is_bert()) return std::make_unique<test::FormulaBertSamples>(config, 16, 64);
  return std::make_unique<FormulaSamples>();
}
inline BatchLoader loader_of(Rig& rig, std::int64_t b) {
  return {*rig.backend, parallel::SequenceShard::of(16), b, 1, DType::fp64, sample_fields(rig.gpt.config())};
}

}  // namespace trireme::train
