#include "src/train/generation.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trireme::train {
namespace {

/// Runs positions through the pipeline, one rank after another, with a cache of keys and values.
class Decoder {
 public:
  Decoder(ParallelGpt& gpt, std::int64_t capacity)
      : gpt_(gpt), memory_(gpt.backend()), capacity_(capacity), caches_(gpt.stage().make_caches(capacity, memory_)) {}

  std::int64_t positions() const { return positions_; }
  void forget() {
    for (model::KeyValueCache& cache : caches_) cache.length = 0;
    positions_ = 0;
  }

  /// Feeds `tokens`; the logits of what follows the last of them, on the ranks of the last stage, empty on others.
  std::vector<float> feed(const std::vector<std::int32_t>& tokens) {
    Backend& backend = gpt_.backend();
    Stream& stream = backend.compute_stream();
    Communicator& pipeline = *gpt_.communicators().pipeline;
    const model::StageShard& place = gpt_.place();
    const auto count = static_cast<std::int64_t>(tokens.size());
    const DType dtype = gpt_.layout().dtype;
    const ArenaScope scope(memory_);

    const TensorView ids = memory_.allocate(DType::int32, {count, 1});
    backend.copy_from_host(stream, ConstTensorView(tokens.data(), ids.shape()), ids);
    const auto pass = [&](Transfer::Direction direction, int peer, TensorView data) {
      const Transfer transfer{direction, peer, data};
      for (Work& work : pipeline.exchange(stream, std::span(&transfer, 1))) work.wait(stream);
    };
    const int stages = pipeline.size();
    TensorView input;
    TensorView output;
    for (int chunk = 0; chunk < static_cast<int>(place.chunks.size()); ++chunk) {
      const bool last = gpt_.stage().is_last(chunk);
      if (stages > 1 && !gpt_.stage().is_first(chunk)) {
        input = memory_.allocate(dtype, {count, 1, gpt_.config().hidden});
        pass(Transfer::Direction::receive, (pipeline.rank() + stages - 1) % stages, input);
      }
      output = last ? memory_.allocate(dtype, {1, gpt_.vocabulary().rows()})
                    : memory_.allocate(dtype, {count, 1, gpt_.config().hidden});
      gpt_.stage().forward_cached(chunk, count, positions_, ids, input, caches_, output);
      if (stages > 1 && !last) pass(Transfer::Direction::send, (pipeline.rank() + 1) % stages, output);
      input = output;  // of the next chunk, where this rank is the whole pipeline
    }
    positions_ += count;
    return place.last_stage ? gather_logits(output) : std::vector<float>();
  }

 private:
  std::vector<float> gather_logits(ConstTensorView part) {
    Backend& backend = gpt_.backend();
    Stream& stream = backend.compute_stream();
    const TensorView all = memory_.allocate(part.dtype(), {gpt_.vocabulary().padded_size()});
    gpt_.communicators().tensor->all_gather(stream, part, all).wait(stream);
    const TensorView rounded = memory_.allocate(DType::fp32, all.shape());
    backend.elementwise().convert(stream, all, rounded);
    std::vector<float> logits(static_cast<std::size_t>(rounded.numel()));
    backend.copy_to_host(stream, rounded, TensorView(logits.data(), rounded.shape()));
    stream.synchronize();
    logits.resize(static_cast<std::size_t>(gpt_.vocabulary().size()));
    return logits;
  }

  ParallelGpt& gpt_;
  Arena memory_;
  std::int64_t capacity_;
  std::vector<model::KeyValueCache> caches_;
  std::int64_t positions_ = 0;
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

std::vector<std::int32_t> generate(ParallelGpt& gpt, Communicator& world, const std::vector<std::int32_t>& prompt,
                                   std::int64_t max_new_tokens, std::int32_t end_of_document,
                                   const SamplingOptions& options, const std::function<void(std::int32_t)>& on_token) {
  const std::int64_t capacity = gpt.config().max_positions;
  TRIREME_CHECK(!prompt.empty(), ConfigError, "--prompt is empty: give at least one character to continue");
  Decoder decoder(gpt, capacity);
  std::vector<std::int32_t> text = prompt;
  const auto latest = [&](std::int64_t count) {
    return std::vector<std::int32_t>(text.end() - std::min<std::int64_t>(count, std::ssize(text)), text.end());
  };
  std::vector<std::int32_t> fresh = latest(std::min(capacity, static_cast<std::int64_t>(prompt.size())));
  ImmediateStream host;
  // The rank that decides: the first of the last stage.
  const int chooser = gpt.grid().rank({.pipeline = gpt.grid().pipeline_size() - 1});
  while (std::ssize(text) - std::ssize(prompt) < max_new_tokens) {
    if (decoder.positions() + std::ssize(fresh) > capacity) {
      decoder.forget();
      fresh = latest(std::max<std::int64_t>(1, capacity / 2));
    }
    const std::vector<float> logits = decoder.feed(fresh);
    constexpr std::int32_t none = -1;
    const bool finite = std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); });
    std::int32_t token = logits.empty() || !finite ? none : choose_token(logits, options, std::ssize(text));
    world.broadcast(host, TensorView(&token, {1}), chooser).wait(host);
    TRIREME_CHECK(
        token != none, NumericalError,
        "the model's output is not finite after {} tokens: its training diverged, or its weights are too large "
        "for {}; take an earlier checkpoint, or a wider --dtype",
        text.size(), name_of(gpt.layout().dtype));
    if (token == end_of_document) break;
    text.push_back(token);
    fresh = {token};
    if (on_token) on_token(token);
  }
  return {text.begin() + std::ssize(prompt), text.end()};
}

}  // namespace trireme::train
