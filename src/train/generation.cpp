#include "src/train/generation.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/model/stage/decoding_stage.hpp"

namespace trireme::train {
namespace {

/// Runs new positions of a text through the pipeline, as a forward schedule of one micro-batch.
class Decoder {
 public:
  Decoder(ParallelModel& model, std::int64_t capacity)
      : model_(model),
        stage_(model.stage(), capacity),
        schedule_(parallel::make_forward_schedule(model.grid().pipeline_size(), 1, model.pipeline_layout().chunks)),
        executor_(model.backend(), *model.communicators().pipeline, stage_),
        memory_(model.backend()) {}

  std::int64_t positions() const { return stage_.positions(); }
  void clear() { stage_.clear(); }

  /// Appends `tokens` and returns the logits of the next token on the ranks of the last stage, nothing on others.
  std::vector<float> feed(const std::vector<std::int32_t>& tokens) {
    stage_.begin(tokens);
    executor_.run(schedule_);
    return stage_.logits() ? gather(stage_.logits()) : std::vector<float>();
  }

 private:
  /// Gathers the logits of the true vocabulary on the host.
  std::vector<float> gather(ConstTensorView shard) {
    Backend& backend = model_.backend();
    Stream& stream = backend.compute_stream();
    const ArenaScope scope(memory_);
    const TensorView all = memory_.allocate(shard.dtype(), {model_.vocabulary().padded_size()});
    model_.communicators().tensor->all_gather(stream, shard, all).wait(stream);
    const TensorView rounded = memory_.allocate(DType::fp32, all.shape());
    backend.elementwise().convert(stream, all, rounded);
    std::vector<float> logits(static_cast<std::size_t>(rounded.numel()));
    backend.copy_to_host(stream, rounded, TensorView(logits.data(), rounded.shape()));
    stream.synchronize();
    logits.resize(static_cast<std::size_t>(model_.vocabulary().size()));
    return logits;
  }

  ParallelModel& model_;
  model::DecodingStage stage_;
  parallel::Schedule schedule_;
  parallel::PipelineExecutor executor_;
  Arena memory_;
};

}  // namespace

std::int32_t choose_token(std::vector<float> logits, const SamplingOptions& options, std::int64_t position) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  // Likeliest first; equal logits in the order of their ids.
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  if (options.temperature == 0) return order.front();
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < order.size()) {
    order.resize(static_cast<std::size_t>(options.top_k));
  }
  std::vector<double> weights;
  for (const std::int32_t id : order) {
    weights.push_back(
        std::exp((logits[static_cast<std::size_t>(id)] - logits[static_cast<std::size_t>(order.front())]) /
                 options.temperature));
  }
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (options.top_p > 0 && options.top_p < 1) {
    double sum = 0;
    std::size_t kept = 0;
    while (kept < weights.size() && sum < options.top_p * total) sum += weights[kept++];
    weights.resize(kept);
    total = sum;
  }
  const auto words =
      philox4x32(mix64(options.seed ^ fnv1a("generate")),
                 {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), 0, 0});
  const double uniform = ((words[0] >> 5) * 67108864.0 + (words[1] >> 6)) / 9007199254740992.0;  // 53 bits
  double below = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    below += weights[i];
    if (uniform * total < below) return order[i];
  }
  return order[weights.size() - 1];
}

std::vector<std::int32_t> generate(ParallelModel& model, Communicator& world, const std::vector<std::int32_t>& prompt,
                                   std::int64_t max_new_tokens, std::int32_t end_of_document,
                                   const SamplingOptions& options, const std::function<void(std::int32_t)>& on_token) {
  const std::int64_t capacity = model.config().max_positions;
  TRIREME_CHECK(!prompt.empty(), ConfigError, "<prompt> is empty. Try a prompt of at least one character.");
  Decoder decoder(model, capacity);
  std::vector<std::int32_t> text = prompt;
  const auto latest = [&](std::int64_t count) {
    return std::vector<std::int32_t>(text.end() - std::min<std::int64_t>(count, std::ssize(text)), text.end());
  };
  std::vector<std::int32_t> fresh = latest(std::min(capacity, static_cast<std::int64_t>(prompt.size())));
  ImmediateStream host;
  // The rank that samples the token: the first of the last stage.
  const int chooser = model.grid().rank({.pipeline = model.grid().pipeline_size() - 1});
  while (std::ssize(text) - std::ssize(prompt) < max_new_tokens) {
    if (decoder.positions() + std::ssize(fresh) > capacity) {
      decoder.clear();
      fresh = latest(std::max<std::int64_t>(1, capacity / 2));
    }
    const std::vector<float> logits = decoder.feed(fresh);
    constexpr std::int32_t none = -1;
    const bool finite = std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); });
    std::int32_t token = logits.empty() || !finite ? none : choose_token(logits, options, std::ssize(text));
    world.broadcast(host, TensorView(&token, {1}), chooser).wait(host);
    TRIREME_CHECK(token != none, NumericalError,
                  "generation failed: the model's output is not finite after {} tokens; its training diverged, or its "
                  "weights are "
                  "too large for {}. Try an earlier checkpoint, or a wider <dtype>.",
                  text.size(), name_of(model.execution().dtype));
    if (token == end_of_document) break;
    text.push_back(token);
    fresh = {token};
    if (on_token) on_token(token);
  }
  return {text.begin() + std::ssize(prompt), text.end()};
}

}  // namespace trireme::train
