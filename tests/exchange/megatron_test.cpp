// Checkpoints of Megatron-LM. Some were converted from models of transformers and have their parameters. Others (run_*)
// were written by megatron-core, whose logits the imported models reproduce.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "io/huggingface/config_json.hpp"
#include "io/megatron/megatron_checkpoint.hpp"
#include "io/safetensors/safetensors_source.hpp"
#include "src/base/check.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/exchange/import.hpp"
#include "src/exchange/model_class.hpp"
#include "src/train/parallel_model.hpp"
#include "tests/support/parameter_values.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::exchange {
namespace {

constexpr const char* checkpoints = TRIREME_FIXTURES "/megatron/";

std::vector<float> values_of(ParameterReader& reader, const MappedParameter& parameter) {
  const std::vector<std::byte> bytes = test::read_in_halves(reader, parameter, DType::fp32);
  std::vector<float> values(static_cast<std::size_t>(parameter.shape.numel()));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

NameRules name_rules() {
  NameRules rules;
  rules.other_names = megatron_other_names;
  rules.is_ignored = [](const std::string& name) { return is_megatron_buffer(name); };
  return rules;
}

/// Compares a checkpoint's parameters with a model's. `rounded`: the layers were saved in bf16.
void expect_same(const std::string& checkpoint, const std::string& model, bool rounded) {
  const std::string folder = std::string(TRIREME_FIXTURES) + "/huggingface/" + model;
  const io::HuggingFaceModel original = io::read_config_json(folder + "/config.json");
  io::SafetensorsSource weights(folder);
  const TensorMap wanted = tensor_map(*original.model_class, original.config);
  NameRules rules;
  rules.other_names = [&](const std::string& name) { return other_names(*original.model_class, name); };
  rules.is_ignored = is_buffer;
  ParameterReader expected(wanted, weights, match(wanted, weights, rules));

  io::MegatronCheckpoint opened = io::open_megatron_checkpoint(checkpoints + checkpoint);
  model::ModelConfig config = opened.model.config;
  config.vocabulary = original.config.vocabulary;
  config.hidden_dropout = original.config.hidden_dropout;
  config.attention_dropout = original.config.attention_dropout;
  EXPECT_EQ(model::attributes_of(config), model::attributes_of(original.config)) << checkpoint;
  EXPECT_EQ(opened.layout.vocabulary_rows, 20);
  const TensorMap map = megatron_tensor_map(config, opened.layout);
  ParameterReader reader(map, *opened.source, match(map, *opened.source, name_rules()));
  ASSERT_EQ(map.parameters.size(), wanted.parameters.size());
  for (std::size_t i = 0; i < map.parameters.size(); ++i) {
    const MappedParameter& parameter = map.parameters[i];
    ASSERT_EQ(parameter.name, wanted.parameters[i].name);
    std::vector<float> exact = values_of(expected, wanted.parameters[i]);
    if (rounded && parameter.name.starts_with("h.")) {
      for (float& value : exact) value = static_cast<float>(bf16(value));
    }
    EXPECT_EQ(values_of(reader, parameter), exact) << checkpoint << " " << parameter.name;
  }
}

TEST(MegatronCheckpoint, HasTheParametersOfItsModel) {
  expect_same("core", "llama3", true);  // tensor and pipeline ranks
  expect_same("first", "gpt2", false);  // first version
  expect_same("chunks", "gpt2", false);
  expect_same("dist", "llama3", false);
}

/// Returns the elements of a tensor of a file, of 8 bytes each.
template <class T>
std::vector<T> elements(TensorSource& source, const std::string& name) {
  const auto found = std::ranges::find(source.tensors(), name, &ForeignTensor::name);
  TRIREME_CHECK(found != source.tensors().end(), DataError, "there is no {}", name);
  std::vector<T> result(static_cast<std::size_t>(found->shape.numel()));
  source.read(static_cast<std::size_t>(found - source.tensors().begin()), 0, std::as_writable_bytes(std::span(result)));
  return result;
}

/// Model of a checkpoint, on one rank.
class ImportedModel {
 public:
  explicit ImportedModel(const std::string& folder) : checkpoint_(io::open_megatron_checkpoint(folder)) {
    io::SafetensorsSource inputs(folder + "/expected.safetensors");
    tokens_ = elements<std::int64_t>(inputs, "tokens");
    s_ = checkpoint_.model.config.max_positions;
    b_ = std::ssize(tokens_) / s_;
    model::ModelConfig& config = checkpoint_.model.config;
    config.hidden_dropout = config.attention_dropout = 0;
    const TensorMap map = megatron_tensor_map(config, checkpoint_.layout);
    ParameterReader reader(map, *checkpoint_.source, match(map, *checkpoint_.source, name_rules()));
    train::ExecutionConfig execution;
    execution.dtype = DType::fp64;
    execution.sequence_length = s_;
    execution.micro_batch_size = b_;
    model_.emplace(*backend_, world_, grid_, communicators_, config, execution);
    if (config.is_bert()) {
      types_ = elements<std::int64_t>(inputs, "types");
      lengths_ = elements<std::int64_t>(inputs, "lengths");
    }
    std::vector<std::byte> bytes;
    for (const parallel::Parameter& parameter : model_->parameters().parameters()) {
      const auto mapped = std::ranges::find(map.parameters, parameter.name, &MappedParameter::name);
      reader.read(*mapped, parameter.value.dtype(), bytes);
      std::ranges::copy(bytes, parameter.value.data());
    }
  }

  const io::MegatronModel& description() const { return checkpoint_.model; }
  const model::ModelConfig& config() const { return checkpoint_.model.config; }
  /// Returns whether a token [b, s] is not padding.
  bool counts(std::size_t token) const {
    const auto s = static_cast<std::size_t>(s_);
    return lengths_.empty() || static_cast<std::int64_t>(token % s) < lengths_[token / s];
  }

  /// Log-probabilities [b, s, v] of all tokens at all positions.
  std::vector<double> log_probabilities() {
    const auto v = static_cast<std::size_t>(config().vocabulary);
    std::vector<double> result(tokens_.size() * v);
    for (std::size_t label = 0; label < v; ++label) {
      const std::vector<double> losses = run(label, 0).first;
      for (std::size_t i = 0; i < losses.size(); ++i) result[i * v + label] = -losses[i];
    }
    return result;
  }
  /// Sum over the samples of the log-probability of a segment order, 0 or 1.
  double order_log_probability(std::int32_t order) { return -run(0, order).second; }

 private:
  /// Losses of each token [b, s] for a label, and the summed loss of the segment order.
  std::pair<std::vector<double>, double> run(std::size_t label, std::int32_t order) {
    const auto s = static_cast<std::size_t>(s_), b = static_cast<std::size_t>(b_);
    const auto transposed = [&](const std::vector<std::int64_t>& values) {
      std::vector<std::int32_t> result(s * b);
      for (std::size_t i = 0; i < values.size(); ++i) result[i % s * b + i / s] = static_cast<std::int32_t>(values[i]);
      return result;
    };
    const std::vector<std::int32_t> ids = transposed(tokens_), types = transposed(types_), orders(b, order),
                                    labels(s * b, static_cast<std::int32_t>(label)),
                                    lengths(lengths_.begin(), lengths_.end());
    const std::vector<double> weights(s * b, 1), sample_weights(b, 1);
    const std::vector<std::int64_t> numbers(b);
    std::vector<double> losses(s * b);
    model::MicroBatch batch;
    batch.tokens = ConstTensorView(ids.data(), {s_, b_});
    batch.labels = ConstTensorView(labels.data(), {s_, b_});
    batch.loss_weights = ConstTensorView(weights.data(), {s_ * b_});
    batch.samples = ConstTensorView(numbers.data(), {b_});
    batch.token_losses = TensorView(losses.data(), {s_ * b_});
    if (config().is_bert()) {
      batch.token_types = ConstTensorView(types.data(), {s_, b_});
      batch.lengths = ConstTensorView(lengths.data(), {b_});
      batch.sample_labels = ConstTensorView(orders.data(), {b_});
      batch.sample_weights = ConstTensorView(sample_weights.data(), {b_});
    }
    model::StageMode mode;
    mode.backward = false;
    model_->run({batch}, mode);
    std::pair<std::vector<double>, double> result{std::vector<double>(s * b), model_->take_global_loss_sums().samples};
    for (std::size_t i = 0; i < s * b; ++i) result.first[i] = losses[i % s * b + i / s];
    return result;
  }

  io::MegatronCheckpoint checkpoint_;
  std::int64_t s_ = 0, b_ = 0;
  std::vector<std::int64_t> tokens_, types_, lengths_;
  SelfCommunicator world_;
  parallel::ProcessGrid grid_{1, 1, 1};
  std::unique_ptr<Backend> backend_ = make_backend(BackendChoice::cpu, 1);
  parallel::GridCommunicators communicators_ = parallel::make_grid_communicators(grid_, world_);
  std::optional<train::ParallelModel> model_;
};

class MegatronCore : public testing::TestWithParam<const char*> {};

TEST_P(MegatronCore, LogitsAreThoseOfItsOwnForward) {
  const std::string name = GetParam(), folder = checkpoints + name;
  io::SafetensorsSource expected(folder + "/expected.safetensors");
  ImportedModel model(folder);
  const auto v = static_cast<std::size_t>(model.config().vocabulary);
  std::vector<double> wanted = test::log_softmax(elements<double>(expected, "logits"), v);
  // The fused GELU of megatron-core rounds sqrt(2 / pi) to eight digits.
  const double exact = model.config().activation == Activation::gelu_tanh && !model.config().gated ? 1e-8 : 1e-10;
  const test::Tolerance close = {exact, exact};
  std::vector<double> actual = model.log_probabilities();
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (!model.counts(i / v)) actual[i] = wanted[i] = 0;
  }
  // If a BERT has two kinds of GELU, its head of masked tokens is only close.
  const bool is_near = model.description().has_two_gelus;
  test::expect_close(actual, wanted, is_near ? test::Tolerance{0, 1e-3} : close, name);
  if (!model.config().has_binary_head()) return;
  const std::vector<double> orders = test::log_softmax(elements<double>(expected, "order_logits"), 2);  // [b, 2]
  for (std::size_t order = 0; order < 2; ++order) {
    double sum = 0;
    for (std::size_t i = order; i < orders.size(); i += 2) sum += orders[i];
    test::expect_close(std::vector{model.order_log_probability(static_cast<std::int32_t>(order))}, std::vector{sum},
                       close, "order of segments");
  }
}

INSTANTIATE_TEST_SUITE_P(EveryRun, MegatronCore,
                         testing::Values("run_bert", "run_bert_fused", "run_bert_plain", "run_common", "run_gpt2",
                                         "run_window", "run_yarn"));

TEST(MegatronNames, AreThoseOfEveryVersion) {
  using testing::Contains;
  const auto expect = [](const char* now, std::initializer_list<const char*> older) {
    for (const char* name : older) EXPECT_THAT(megatron_other_names(now), Contains(name));
  };
  expect("decoder.layers.3.input_layernorm.weight", {"decoder.layers.3.self_attention.linear_qkv.layer_norm_weight",
                                                     "language_model.encoder.layers.3.input_norm.weight",
                                                     "language_model.transformer.layers.3.input_layernorm.weight"});
  expect("encoder.layers.0.pre_mlp_layernorm.bias",
         {"encoder.layers.0.mlp.linear_fc1.layer_norm_bias", "language_model.encoder.layers.0.post_attention_norm.bias",
          "language_model.encoder.layers.0.post_attention_layernorm.bias"});
  expect("decoder.layers.0.self_attention.linear_qkv.bias",
         {"language_model.encoder.layers.0.self_attention.query_key_value.bias",
          "language_model.transformer.layers.0.attention.query_key_value.bias"});
  expect("decoder.final_layernorm.weight",
         {"language_model.encoder.final_norm.weight", "language_model.transformer.final_layernorm.weight"});
  expect("lm_head.layer_norm.bias", {"lm_head.layernorm.bias", "lm_head.norm.bias"});
  expect("output_layer.bias", {"lm_head.bias"});
  expect("output_layer.weight", {"language_model.output_layer.weight"});
  expect("pooler.dense.weight", {"language_model.pooler.dense.weight"});
  expect("embedding.tokentype_embeddings.weight", {"language_model.embedding.tokentype_embeddings.weight"});
}

}  // namespace
}  // namespace trireme::exchange
