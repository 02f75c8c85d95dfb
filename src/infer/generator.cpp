#include "src/infer/generator.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "src/base/timer.hpp"
#include "src/comm/host_collectives.hpp"

namespace trireme::infer {
namespace {

/// Returns the batch size, or throws EnvironmentError if its cache exceeds a rank's memory. Collective.
std::int64_t checked_batch(train::ParallelModel& model, Communicator& world, std::int64_t positions,
                           std::int64_t batch_size) {
  const std::int64_t fit = texts_that_fit(model, world, positions, batch_size);
  TRIREME_CHECK(fit == batch_size, EnvironmentError,
                "generation failed: keys and values of {} texts of {} tokens do not fit into the free memory of every "
                "rank, but those of {} do. Try a smaller <batch_size>.",
                batch_size, positions, fit);
  return batch_size;
}

}  // namespace

std::int64_t texts_that_fit(train::ParallelModel& model, Communicator& world, std::int64_t positions,
                            std::int64_t most) {
  const model::LayerShape& shape = model.stage().shape();
  const double bytes = static_cast<double>(model.stage().layers().size()) *
                       static_cast<double>(positions * 2 * shape.kv_columns()) *
                       static_cast<double>(size_of(shape.dtype));
  const auto free = static_cast<double>(model.backend().free_memory_bytes());
  const auto fit = static_cast<std::int64_t>(std::min(static_cast<double>(most), free / std::max(bytes, 1.0)));
  return -all_reduce_number(world, -fit, ReduceOp::max);
}

Generator::Generator(train::ParallelModel& model, Communicator& world, const GenerationOptions& options,
                     const GeneratorUse& use)
    : model_(model),
      options_(options),
      keeps_cache_(use.keeps_cache),
      replica_(world.split(use.together ? 0 : model.grid().position(world.rank()).data, world.rank(), "replica")),
      // The ranks of a replica are in world order: those of the last stage come last.
      chooser_(replica_->size() - replica_->size() / model.grid().pipeline_size()),
      capacity_(model.config().max_positions),
      decoder_(model, checked_batch(model, world, std::min(use.positions, capacity_), options.batch_size),
               std::min(use.positions, capacity_)) {}

std::optional<Failure> Generator::run(const Next& next, const Done& done) {
  for (;;) {
    for (std::optional<Prompt> prompt; std::ssize(texts_) < options_.batch_size && (prompt = next());) {
      Text& text = texts_.emplace_back();
      text.prompt = std::move(*prompt);
      text.finished = text.prompt.max_new_tokens == 0;
      if (!text.finished) {
        const Timer timer;
        decoder_.fill(std::ssize(texts_) - 1, text.latest(capacity_));
        const std::optional<Failure> failure = choose(std::ssize(texts_) - 1);
        prompts_s_ += timer.elapsed_s();
        if (failure) return failure;
      }
      release_finished(done);
    }
    if (texts_.empty()) return {};
    step();
    if (const auto failure = choose(0)) return failure;
    if (options_.interrupted) interrupt();
    release_finished(done);
  }
}

std::vector<std::int32_t> Generator::Text::latest(std::int64_t count) const {
  std::vector<std::int32_t> all = prompt.tokens;
  all.insert(all.end(), continuation.tokens.begin(), continuation.tokens.end());
  if (std::ssize(all) > count) all.erase(all.begin(), all.end() - count);
  return all;
}

void Generator::interrupt() {
  if (all_reduce_number(*replica_, std::int32_t{options_.interrupted()}, ReduceOp::max) == 0) return;
  for (Text& text : texts_) {
    if (!text.finished) text.continuation.reason = FinishReason::interrupted;
    text.finished = true;
  }
}

void Generator::step() {
  std::vector<std::int32_t> newest;
  for (std::int64_t i = 0; i < std::ssize(texts_); ++i) {
    const Text& text = texts_[static_cast<std::size_t>(i)];
    newest.push_back(text.continuation.tokens.back());
    if (decoder_.length(i) < capacity_) continue;
    std::vector<std::int32_t> context = text.latest(std::max<std::int64_t>(1, capacity_ / 2));
    context.pop_back();  // the newest token follows in the step
    decoder_.clear(i);
    if (!context.empty()) decoder_.fill(i, context);
  }
  decoder_.step(newest);
}

std::optional<Failure> Generator::choose(std::int64_t first) {
  constexpr std::int32_t none = -1;
  const std::int64_t count = std::ssize(texts_) - first;
  const bool wants_probabilities = options_.log_probabilities.has_value();
  const std::int64_t each =
      wants_probabilities ? 1 + std::min(*options_.log_probabilities, model_.vocabulary().size()) : 1;
  std::vector<std::int32_t> tokens;
  std::vector<double> values;
  const ConstTensorView logits = decoder_.logits();
  const auto choose_all = [&]<class Logit>() {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::span own(logits.as<Logit>() + i * logits.shape().back(),
                          static_cast<std::size_t>(model_.vocabulary().size()));
      const Text& text = texts_[static_cast<std::size_t>(first + i)];
      if (!all_finite(own)) {
        tokens.insert(tokens.end(), static_cast<std::size_t>(each), none);
        values.insert(values.end(), static_cast<std::size_t>(each), 0);
        continue;
      }
      const auto choose_from = [&](auto of) {
        return choose_token(of, options_.sampling, text.size(), text.prompt.number);
      };
      std::int32_t token = none;
      if (options_.sampling.repetition_penalty == 1) {
        token = choose_from(own);
      } else {
        std::vector<double> penalised(own.begin(), own.end());
        penalise_repetitions(penalised, text.latest(text.size()), options_.sampling.repetition_penalty);
        token = choose_from(std::span<const double>(penalised));
      }
      if (!wants_probabilities) {
        tokens.push_back(token);
        continue;
      }
      for (const TokenProbability& likely : log_probabilities(own, token, each - 1)) {
        tokens.push_back(likely.token);
        values.push_back(likely.log_probability);
      }
    }
  };
  if (replica_->rank() == chooser_) {
    if (logits.dtype() == DType::fp64)
      choose_all.template operator()<double>();
    else
      choose_all.template operator()<float>();
  }
  broadcast(tokens, count * each);
  if (wants_probabilities) broadcast(values, count * each);
  for (std::int64_t i = 0; i < count; ++i) {
    Text& text = texts_[static_cast<std::size_t>(first + i)];
    const auto at = static_cast<std::size_t>(i * each);
    if (tokens[at] == none) return Failure{text.prompt.number, text.size()};
    append(text, tokens[at]);
    if (text.continuation.reason == FinishReason::end_of_document) continue;
    if (wants_probabilities) {
      auto& probabilities = text.continuation.log_probabilities.emplace_back();
      for (std::size_t j = at; j < at + static_cast<std::size_t>(each); ++j) {
        probabilities.push_back({tokens[j], values[j]});
      }
    }
    if (options_.observe) options_.observe(text.prompt, text.continuation);
  }
  return {};
}

template <class T>
void Generator::broadcast(std::vector<T>& data, std::int64_t size) {
  data.resize(static_cast<std::size_t>(size));
  ImmediateStream host;
  replica_->broadcast(host, TensorView(data.data(), {size}), chooser_).wait(host);
}

void Generator::append(Text& text, std::int32_t token) {
  Continuation& continuation = text.continuation;
  text.finished = true;
  if (std::ranges::find(options_.end_tokens, token) != options_.end_tokens.end()) {
    continuation.reason = FinishReason::end_of_document;
    return;
  }
  continuation.tokens.push_back(token);
  if (options_.stops && options_.stops(continuation.tokens)) {
    continuation.reason = FinishReason::stop;
  } else {
    text.finished = std::ssize(continuation.tokens) == text.prompt.max_new_tokens;
  }
}

void Generator::release_finished(const Done& done) {
  for (std::int64_t i = std::ssize(texts_) - 1; i >= 0; --i) {
    Text& text = texts_[static_cast<std::size_t>(i)];
    if (!text.finished) continue;
    done(text.prompt, text.continuation);
    const std::int64_t last = std::ssize(texts_) - 1;
    if (i != last) {
      decoder_.copy(last, i);
      text = std::move(texts_.back());
    }
    if (!keeps_cache_) decoder_.clear(last);
    texts_.pop_back();
  }
}

}  // namespace trireme::infer
