// Models of Hugging Face's transformers: losses, logits and gradients match those of transformers in fp64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "io/huggingface/adapter_json.hpp"
#include "io/huggingface/config_json.hpp"
#include "io/safetensors/safetensors_source.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/exchange/import.hpp"
#include "src/exchange/model_class.hpp"
#include "src/train/parallel_model.hpp"
#include "src/train/router_biases.hpp"
#include "tests/support/parameter_values.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::test {
namespace {

constexpr Tolerance close = {1e-10, 1e-10};

/// Folder of the models: tests/fixtures, or other output of tests/fixtures/huggingface/make.py.
std::string fixtures() {
  const char* elsewhere = std::getenv("TRIREME_HUGGINGFACE_MODELS");
  return elsewhere != nullptr ? elsewhere : TRIREME_FIXTURES "/huggingface";
}

/// Returns a tensor of a file as numbers; empty if it is absent.
std::vector<double> numbers(exchange::TensorSource& source, const std::string& name) {
  for (std::size_t i = 0; i < source.tensors().size(); ++i) {
    const exchange::ForeignTensor& tensor = source.tensors()[i];
    if (tensor.name != name) continue;
    const auto count = static_cast<std::size_t>(tensor.shape.numel());
    std::vector<double> result(count);
    std::vector<std::byte> bytes(count * 8);
    source.read(i, 0, bytes);
    for (std::size_t j = 0; j < count; ++j) {
      std::int64_t integer = 0;
      std::memcpy(tensor.dtype == DType::int64 ? static_cast<void*>(&integer) : &result[j], bytes.data() + 8 * j, 8);
      if (tensor.dtype == DType::int64) result[j] = static_cast<double>(integer);
    }
    return result;
  }
  return {};
}

/// Model on one rank, with the tensors of its files.
class HuggingFaceRun {
 public:
  explicit HuggingFaceRun(const std::string& folder, const std::string& adapters = "")
      : description_(io::read_config_json(folder + "/config.json")),
        weights_(std::make_unique<io::SafetensorsSource>(folder)),
        expected_((adapters.empty() ? folder : adapters) + "/expected.safetensors") {
    exchange::take_modules(description_.ahead_depths, *weights_, description_.config);
    map_ = exchange::tensor_map(*description_.model_class, description_.config, {.rotary = description_.rotary});
    if (!adapters.empty()) {
      io::SafetensorsSource peft(adapters + "/adapter_model.safetensors");
      weights_ =
          exchange::with_adapters(std::move(weights_), peft, io::read_adapter_json(adapters + "/adapter_config.json"),
                                  map_, description_.config);
    }
    rules_.is_ignored = exchange::is_buffer;
    tokens_ = expected("input.input_ids");
    const std::vector<double> mask = expected("input.attention_mask");
    s_ = expected_.tensors()[index_of("input.input_ids")].shape[1];
    b_ = std::ssize(tokens_) / s_;
    lengths_.assign(static_cast<std::size_t>(b_), static_cast<std::int32_t>(mask.empty() ? s_ : 0));
    for (std::size_t i = 0; i < mask.size(); ++i) lengths_[i / static_cast<std::size_t>(s_)] += mask[i] != 0;
    train::ExecutionConfig execution;
    execution.dtype = DType::fp64;
    execution.sequence_length = s_;
    execution.micro_batch_size = b_;
    description_.config.hidden_dropout = description_.config.attention_dropout = 0;
    model_.emplace(*backend_, world_, grid_, communicators_, description_.config, execution);
    load();
  }

  const model::ModelConfig& config() const { return description_.config; }
  std::int64_t samples() const { return b_; }
  std::vector<double> expected(const std::string& name) { return numbers(expected_, name); }

  struct Result {
    double loss = 0;
    std::vector<double> token_losses;  // [b, s]
    std::vector<double> sample_scores;
  };

  /// Runs forward on the inputs, with `labels` [b, s], ignoring negative ones; then backward, if requested.
  Result run(const std::vector<double>& labels, bool backward) {
    const auto size = static_cast<std::size_t>(s_ * b_);
    std::vector<std::int32_t> ids(size), targets(size), types(size);
    std::vector<double> weights(size), losses(size);
    const std::vector<double> token_types = expected("input.token_type_ids");
    double counted = 0;
    for (std::int64_t sample = 0; sample < b_; ++sample) {
      for (std::int64_t row = 0; row < s_; ++row) {
        const auto from = static_cast<std::size_t>(sample * s_ + row), to = static_cast<std::size_t>(row * b_ + sample);
        ids[to] = static_cast<std::int32_t>(tokens_[from]);
        if (!token_types.empty()) types[to] = static_cast<std::int32_t>(token_types[from]);
        if (labels.empty() || labels[from] < 0) continue;
        targets[to] = static_cast<std::int32_t>(labels[from]);
        weights[to] = 1;
        counted += 1;
      }
    }
    const std::int64_t classes = b_ / config().samples_per_label();
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(b_));
    std::vector<std::int32_t> sample_labels(static_cast<std::size_t>(classes)), ends(static_cast<std::size_t>(b_));
    std::vector<double> sample_weights(static_cast<std::size_t>(classes), 1);
    const bool spans = config().output == model::ModelOutput::spans;
    const std::vector<double> of_samples = expected(config().has_binary_head() ? "input.next_sentence_label"
                                                    : spans                    ? "input.start_positions"
                                                                               : "input.labels");
    const std::vector<double> of_ends = expected("input.end_positions");
    if (config().is_bert()) std::ranges::copy(of_samples, sample_labels.begin());
    if (spans) std::ranges::copy(of_ends, ends.begin());

    // One module: it reads the next token, and predicts the next label.
    const std::size_t last = config().predicts_ahead() && !labels.empty() ? size - static_cast<std::size_t>(b_) : 0;
    std::vector<std::int32_t> next_ids(size), next_targets(size);
    std::vector<double> next_weights(size);
    for (std::size_t i = 0; i < last; ++i) {
      const std::size_t next = i + static_cast<std::size_t>(b_);
      next_ids[i] = ids[next];
      next_targets[i] = targets[next];
      next_weights[i] = weights[next];
    }

    const Shape rows{s_, b_}, flat{s_ * b_};
    model::MicroBatch batch;
    if (config().predicts_ahead()) {
      batch.tokens_ahead = ConstTensorView(next_ids.data(), rows);
      batch.labels_ahead = ConstTensorView(next_targets.data(), rows);
      batch.ahead_weights = ConstTensorView(next_weights.data(), flat);
    }
    batch.tokens = ConstTensorView(ids.data(), rows);
    batch.labels = ConstTensorView(targets.data(), rows);
    batch.loss_weights = ConstTensorView(weights.data(), flat);
    batch.samples = ConstTensorView(numbers.data(), {b_});
    if (config().predicts_tokens()) batch.token_losses = TensorView(losses.data(), flat);
    if (config().is_bert()) {
      batch.token_types = ConstTensorView(types.data(), rows);
      batch.lengths = ConstTensorView(lengths_.data(), {b_});
      batch.sample_labels = ConstTensorView(sample_labels.data(), {classes});
      batch.sample_weights = ConstTensorView(sample_weights.data(), {classes});
    }
    if (spans) batch.span_ends = ConstTensorView(ends.data(), {b_});
    model::StageMode mode;
    mode.backward = backward;
    mode.loss_gradient = counted > 0 ? 1 / counted : 0;
    mode.ahead_loss_gradient = mode.loss_gradient * config().ahead.loss_factor;
    mode.sample_loss_gradient = 1 / static_cast<double>(classes);
    model_->run({batch}, mode);
    if (backward) model_->reduce_gradients();
    const model::LossSums sums = model_->take_global_loss_sums();
    Result result;
    result.loss = (counted > 0 ? (sums.tokens + config().ahead.loss_factor * sums.ahead) / counted : 0) +
                  sums.samples / static_cast<double>(classes);
    result.sample_scores = model_->take_sample_scores();
    result.token_losses.resize(size);
    for (std::int64_t sample = 0; sample < b_; ++sample) {
      for (std::int64_t row = 0; row < s_; ++row) {
        result.token_losses[static_cast<std::size_t>(sample * s_ + row)] =
            losses[static_cast<std::size_t>(row * b_ + sample)];
      }
    }
    return result;
  }

  /// Compares the gradients with the tensors of the file.
  void expect_gradients() {
    exchange::NameRules rules;
    rules.is_ignored = [](const std::string& name) {
      return name.starts_with("input.") || name.ends_with("logits") || name == "loss";
    };
    rules.other_names = rules_.other_names;
    exchange::ParameterReader reader(map_, expected_, exchange::match(map_, expected_, rules));
    const auto& parameters = model_->parameters().parameters();
    std::vector<std::vector<double>> wanted;
    std::vector<double> largest;
    for (const parallel::Parameter& parameter : parameters) {
      const exchange::MappedParameter& mapped = mapped_of(parameter.name);
      std::vector<std::byte> bytes;
      reader.read(mapped, DType::fp64, bytes);
      const auto* elements = reinterpret_cast<const double*>(bytes.data());
      wanted.emplace_back(elements, elements + mapped.shape.numel());
      largest.push_back(std::abs(*std::ranges::max_element(wanted.back(), {}, [](double x) { return std::abs(x); })));
    }
    const double largest_of_all = *std::ranges::max_element(largest);
    for (std::size_t p = 0; p < wanted.size(); ++p) {
      const parallel::Parameter& parameter = parameters[p];
      const exchange::MappedParameter& mapped = mapped_of(parameter.name);
      // A bias that a softmax cancels has the gradient 0, except for rounding.
      const bool is_zero = largest[p] < 1e-12 * largest_of_all;
      const auto* gradient = parameter.gradient.as<double>();
      expect_close({gradient, gradient + mapped.shape.numel()}, wanted[p], close, parameter.name,
                   is_zero ? largest_of_all : 0);
    }
  }

  /// Compares the log-probabilities of all tokens at `positions` positions, except for padding.
  void expect_logits(std::size_t positions) {
    const auto v = static_cast<std::size_t>(config().vocabulary);
    std::vector<double> wanted = log_softmax(expected("logits"), v), actual(wanted.size());
    for (std::size_t token = 0; token < v; ++token) {
      const Result of_token = run(std::vector<double>(positions, static_cast<double>(token)), false);
      for (std::size_t row = 0; row < positions; ++row) actual[row * v + token] = -of_token.token_losses[row];
    }
    const std::vector<double> mask = expected("input.attention_mask");
    for (std::size_t i = 0; i < actual.size() && !mask.empty(); ++i) {
      if (mask[i / v] == 0) actual[i] = wanted[i] = 0;
    }
    expect_close(actual, wanted, close, "log-probabilities");
  }

 private:
  std::size_t index_of(const std::string& name) const {
    for (std::size_t i = 0; i < expected_.tensors().size(); ++i) {
      if (expected_.tensors()[i].name == name) return i;
    }
    throw DataError("there is no {}", name);
  }
  const exchange::MappedParameter& mapped_of(const std::string& name) const {
    return *std::ranges::find(map_.parameters, name, &exchange::MappedParameter::name);
  }

  void load() {
    exchange::ParameterReader reader(map_, *weights_, exchange::match(map_, *weights_, rules_));
    for (const parallel::Parameter& parameter : model_->parameters().parameters()) {
      const std::vector<std::byte> bytes = read_in_halves(reader, mapped_of(parameter.name), parameter.value.dtype());
      std::memcpy(parameter.value.data(), bytes.data(), bytes.size());
    }
    if (!config().experts.router_bias) return;
    train::RouterBiases(*model_).read([&](std::size_t i) {
      const parallel::Parameter& parameter = model_->parameters().parameters()[i];
      return parameter.value.flat(0, parameter.stored_numel());
    });
  }

  SelfCommunicator world_;
  parallel::ProcessGrid grid_{1, 1, 1};
  std::unique_ptr<Backend> backend_ = make_backend(BackendChoice::cpu, 1);
  parallel::GridCommunicators communicators_ = parallel::make_grid_communicators(grid_, world_);
  io::HuggingFaceModel description_;
  std::unique_ptr<exchange::TensorSource> weights_;
  io::SafetensorsSource expected_;
  exchange::TensorMap map_;
  exchange::NameRules rules_;
  std::int64_t s_ = 0, b_ = 0;
  std::vector<double> tokens_;
  std::vector<std::int32_t> lengths_;
  std::optional<train::ParallelModel> model_;
};

/// The next tokens; the last position has none.
std::vector<double> next_labels(HuggingFaceRun& run) {
  std::vector<double> labels = run.expected("input.labels");
  const auto s = labels.size() / static_cast<std::size_t>(run.samples());
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = i % s + 1 == s ? -1 : labels[i + 1];
  return labels;
}

class HuggingFace : public testing::TestWithParam<const char*> {};

TEST_P(HuggingFace, LossLogitsAndGradientsAreThoseOfTransformers) {
  HuggingFaceRun run(fixtures() + "/" + GetParam());
  const model::ModelConfig& config = run.config();

  const std::vector<double> labels = !config.predicts_tokens() ? std::vector<double>()
                                     : config.is_bert()        ? run.expected("input.labels")
                                                               : next_labels(run);
  const double loss = run.run(labels, true).loss;
  expect_close(std::vector{loss}, run.expected("loss"), close, "loss");
  run.expect_gradients();

  // The loss of the segment order is part of the loss above.
  std::vector<double> sample_logits = run.expected("sample_logits");
  if (!sample_logits.empty() && !config.predicts_tokens()) {
    std::vector<double> scores = run.run(labels, false).sample_scores;
    ASSERT_EQ(scores.size(), sample_logits.size());
    // Each sample has the logits of first positions, then of last ones. Padding is masked.
    const std::vector<double> mask = run.expected("input.attention_mask");
    const std::size_t positions = mask.size() / static_cast<std::size_t>(run.samples());
    for (std::size_t i = 0; config.output == model::ModelOutput::spans && i < scores.size(); ++i) {
      if (mask[i / (2 * positions) * positions + i % positions] != 0) continue;
      EXPECT_LT(scores[i], -20000) << i;
      scores[i] = sample_logits[i] = 0;
    }
    expect_close(scores, sample_logits, close, "logits of samples");
  }
  if (!run.expected("logits").empty()) run.expect_logits(labels.size());
}

TEST(PeftAdapters, LossAndLogitsAreThoseOfPeft) {
  // Ranks and alpha here: where layers of one weight have two A, twice PEFT's.
  const std::tuple<const char*, std::int64_t, double> cases[] = {
      {"gpt2", 2, 3}, {"llama3", 4, 8 * std::sqrt(2.0)}, {"llama2", 6, 12}, {"deepseek_v2_low_rank", 2, 4}};
  for (const auto& [name, rank, alpha] : cases) {
    SCOPED_TRACE(name);
    HuggingFaceRun run(TRIREME_FIXTURES "/huggingface/" + std::string(name),
                       TRIREME_FIXTURES "/adapters/" + std::string(name));
    EXPECT_EQ(run.config().adapters.rank, rank);
    EXPECT_NEAR(run.config().adapters.alpha, alpha, 1e-12);
    const std::vector<double> labels = next_labels(run);
    expect_close(std::vector{run.run(labels, false).loss}, run.expected("loss"), close, "loss");
    run.expect_logits(labels.size());
  }
}

INSTANTIATE_TEST_SUITE_P(EveryClass, HuggingFace,
                         testing::Values("gpt2", "gpt2_untied", "llama2", "llama3", "llama3.1", "llama_yarn", "mistral",
                                         "qwen2", "qwen3", "gpt_neox", "gpt_neox_sequential", "falcon", "falcon_new",
                                         "falcon_sequential", "falcon_rw", "bloom", "starcoder2", "starcoder2_plain",
                                         "phi3", "phi3_partial", "gemma2", "gemma2_uncapped", "gemma3", "mixtral",
                                         "qwen3_moe", "qwen3_moe_plain", "olmo2", "olmo2_plain", "olmoe", "deepseek_v2",
                                         "deepseek_v2_low_rank", "deepseek_v3", "deepseek_v3_ahead", "bert",
                                         "bert_classes", "bert_choices", "bert_spans", "bert_spans_padded"),
                         [](const auto& present) {
                           std::string name = present.param;
                           std::erase(name, '.');
                           return name;
                         });

}  // namespace
}  // namespace trireme::test
