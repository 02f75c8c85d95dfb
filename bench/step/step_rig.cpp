#include "bench/step/step_rig.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/base/hash.hpp"
#include "src/base/thread_pool.hpp"
#include "src/comm/forwarding_communicator.hpp"
#include "src/data/dataset/gpt_samples.hpp"
#include "src/model/initialisation.hpp"
#include "src/model/presets.hpp"

namespace trireme::bench {
namespace {

/// Tokens by a formula, about as frequent as those of text. The logarithms of their numbers are uniform, and the most
/// frequent one is one in sixteen.
class Tokens final : public data::NextTokenSamples {
 public:
  Tokens(std::int64_t length, std::int64_t vocabulary) : length_(length), vocabulary_(vocabulary) {}
  std::int64_t size() const override { return std::int64_t{1} << 40; }
  std::int64_t sequence_length() const override { return length_; }
  void read_text(std::int64_t index, std::span<std::int32_t> tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const double uniform = static_cast<double>(splitmix64(static_cast<std::uint64_t>(index), i) >> 11) * 0x1p-53;
      tokens[i] = static_cast<std::int32_t>(std::pow(static_cast<double>(vocabulary_), uniform)) - 1;
    }
  }

 private:
  std::int64_t length_;
  std::int64_t vocabulary_;
};

/// First of several ranks, the others of which do not exist. Sums are its own contribution, gathers replicate its own
/// part, and messages of an exchange are not sent.
class FirstAlone final : public ForwardingCommunicator {
 public:
  FirstAlone(int size, ElementwiseKernels& kernels) : ForwardingCommunicator(self_), size_(size), kernels_(kernels) {}
  int size() const override { return size_; }
  Work all_reduce(StreamPoint, TensorView, ReduceOp) override { return {}; }
  Work reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp) override {
    copy(stream, in.flat(0, out.numel()), out);
    return {};
  }
  Work all_gather(StreamPoint stream, ConstTensorView in, TensorView out) override {
    copy(stream, in, out.flat(0, in.numel()));
    // Doubles the filled part with each copy.
    for (std::int64_t done = in.numel(); done < out.numel(); done *= 2) {
      const std::int64_t count = std::min(done, out.numel() - done);
      copy(stream, out.flat(0, count), out.flat(done, count));
    }
    return {};
  }
  Work grouped_exchange(StreamPoint, std::span<const Transfer>) override { return {}; }

 private:
  void copy(Stream& stream, ConstTensorView from, TensorView to) {
    if (from.data() != to.data()) kernels_.convert(stream, from, to);
  }
  SelfCommunicator self_;
  int size_;
  ElementwiseKernels& kernels_;
};

}  // namespace

std::string to_string(const StepCase& c) {
  std::string text = c.decodes ? fmt::format("{}, a token more of {} texts of {} positions", c.model, c.b, c.s)
                               : fmt::format("{}, micro-batch {} of {} tokens", c.model, c.b, c.s);
  if (c.micro_batches > 1) text += fmt::format(", {} micro-batches", c.micro_batches);
  if (c.tensor_ranks > 1) text += fmt::format(", 1 of {} tensor ranks", c.tensor_ranks);
  if (c.sequence_parallel) text += ", sequence parallel";
  if (c.data_ranks > 1) text += fmt::format(", 1 of {} data ranks", c.data_ranks);
  if (c.optimizer != optim::OptimizerKind::adam) text += fmt::format(", {}", name_of(c.optimizer));
  if (c.moments != DType::fp32) text += fmt::format(", moments in {}", name_of(c.moments));
  if (c.dropout != 0.1 && !c.decodes) text += fmt::format(", dropout {}", c.dropout);
  if (c.fp8) text += ", FP8";
  return text + (c.graphs ? ", CUDA graphs" : "");
}

std::string json_fields(const StepCase& c) {
  return fmt::format(
      R"("model": "{}", "s": {}, "micro_batch": {}, "micro_batches": {}, "cuda_graphs": {}, "tensor_ranks": {}, )"
      R"("sequence_parallel": {}, "moments": "{}", "dropout": {}, "decodes": {}, "fp8": {})",
      c.model, c.s, c.b, c.micro_batches, c.graphs, c.tensor_ranks, c.sequence_parallel, name_of(c.moments), c.dropout,
      c.decodes, c.fp8);
}

model::ModelConfig config_of(const StepCase& c) {
  if (c.config) return *c.config;
  model::ModelConfig config{.layers = 2, .hidden = 64, .heads = 2, .ffn_hidden = 256, .vocabulary = 512};
  if (c.model != "tiny") config = model::preset(c.model);
  config.hidden_dropout = config.attention_dropout = c.dropout;
  return config;
}

std::vector<StepCase> predicted_cases() {
  return {{.model = "gpt2-1.2b", .b = 8},
          {.model = "gpt2-124m", .b = 64},
          {.model = "gpt2-8.3b-scaling", .b = 8, .tensor_ranks = 8},
          {.model = "gpt2-8.3b-scaling", .b = 8, .tensor_ranks = 8, .sequence_parallel = true},
          {.model = "gpt2-1.2b", .b = 8, .fp8 = true}};
}

std::vector<StepCase> decoding_cases() {
  return {{.model = "llama2-7b", .b = 1, .dropout = 0, .decodes = true},
          {.model = "llama2-7b", .b = 16, .dropout = 0, .decodes = true}};
}

StepRig::StepRig(const StepCase& c, ObservedBackend& backend, Communicator& devices, const Wrap& wrap)
    : world_(std::make_unique<FirstAlone>(c.data_ranks, backend.elementwise())),
      grid_(c.tensor_ranks * c.data_ranks, c.tensor_ranks, 1),
      communicators_(parallel::make_grid_communicators(parallel::ProcessGrid(1, 1, 1, 1), devices)) {
  for (auto* group : {&communicators_.tensor, &communicators_.model}) {
    if (c.tensor_ranks > 1) *group = std::make_unique<FirstAlone>(c.tensor_ranks, backend.elementwise());
  }
  for (auto* group : {&communicators_.data, &communicators_.gradient}) {
    if (c.data_ranks > 1) *group = std::make_unique<FirstAlone>(c.data_ranks, backend.elementwise());
  }
  if (wrap) communicators_.tensor = wrap(std::move(communicators_.tensor));
  const model::ModelConfig config = config_of(c);
  train::ExecutionConfig execution;
  execution.dtype = c.dtype;
  execution.sequence_length = c.s;
  execution.micro_batch_size = c.b;
  execution.cuda_graphs = c.graphs;
  execution.fp8.used = c.fp8;
  execution.parallel.sequence_parallel = c.sequence_parallel;
  execution.parallel.row_chunks = c.row_chunks;
  if (c.data_ranks > 1) execution.parallel.data_parallel.sharding = parallel::DataSharding::optimizer;
  model_ = std::make_unique<train::ParallelModel>(backend, *world_, grid_, communicators_, config, execution);
  backend.set_logits_columns(model_->vocabulary().padded_size() / c.tensor_ranks);
  train::TrainOptions options;
  options.global_batch_size = c.micro_batches * c.b * c.data_ranks;
  options.lr_schedule.maximum = 1e-4;
  options.lr_schedule.decay = 100;
  options.optimizer.kind = c.optimizer;
  options.optimizer.adamw.exp_avg_dtype = options.optimizer.adamw.exp_avg_sq_dtype = c.moments;
  options.optimizer.adamw.beta2 = 0.95;  // moments in bf16 cannot hold a slower decay
  trainer_ = std::make_unique<train::Trainer>(*model_, options);
  samples_ = std::make_unique<Tokens>(c.s, config.vocabulary);
  case_ = c;
}
StepRig::~StepRig() = default;

void StepRig::initialise() {
  model::initialise(model_->backend(), model_->parameters().parameters(),
                    {.layers = model_->config().layers, .threads = default_thread_count(1)});
  trainer_->start();
}

train::TrainRecord StepRig::step() { return trainer_->step(*samples_); }

void StepRig::advance() {
  if (!case_.decodes) {
    step();
    return;
  }
  if (!decoder_) {
    decoder_.emplace(*model_, case_.b, case_.s);
    const std::vector<std::int32_t> text(static_cast<std::size_t>(case_.s - 2));  // two steps follow
    for (std::int64_t i = 0; i < case_.b; ++i) decoder_->fill(i, text);
  }
  decoder_->step(std::vector<std::int32_t>(static_cast<std::size_t>(case_.b)));
  decoder_->logits();
}

}  // namespace trireme::bench
