#include "src/infer/generation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "src/base/timer.hpp"
#include "src/comm/host_collectives.hpp"
#include "src/model/stage/decoding_stage.hpp"

namespace trireme::infer {
namespace {

/// Runs new positions of texts through the pipeline, as a forward schedule of one micro-batch.
class Decoder {
 public:
  Decoder(train::ParallelModel& model, std::int64_t texts, std::int64_t capacity)
      : model_(model),
        stage_(model.decoding_model(), texts, capacity, model.config().window.left),
        schedule_(parallel::make_forward_schedule(model.grid().pipeline_size(), 1, model.pipeline_layout().chunks)),
        executor_(model.backend(), *model.communicators().pipeline, stage_),
        memory_(model.backend()) {}

  std::int64_t length(std::int64_t text) const { return stage_.length(text); }
  void clear(std::int64_t text) { stage_.clear(text); }
  void copy(std::int64_t from, std::int64_t to) { stage_.copy_text(from, to); }

  /// Runs all tokens of a text without positions.
  void fill(std::int64_t text, const std::vector<std::int32_t>& tokens) {
    stage_.begin_text(text, tokens);
    run();
  }
  /// Appends one token to each of the texts from 0 on.
  void step(const std::vector<std::int32_t>& tokens) {
    stage_.begin_step(tokens);
    run();
  }

  /// Returns the next-token logits of each text of the last run, without padding of the vocabulary, on tensor rank 0 of
  /// the last stage; empty elsewhere. Collective over the tensor group.
  std::vector<std::vector<double>> logits() {
    const ConstTensorView shard = stage_.logits();
    if (!shard) return {};
    Communicator& group = *model_.communicators().tensor;
    Backend& backend = model_.backend();
    Stream& stream = backend.compute_stream();
    const ArenaScope scope(memory_);
    const std::int64_t b = shard.shape()[0], rows = shard.shape()[1];
    const TensorView all = memory_.allocate(shard.dtype(), {group.size(), b, rows});
    group.all_gather(stream, shard, all).wait(stream);
    if (group.rank() != 0) return {};
    const TensorView wide = memory_.allocate(accumulation_type(shard.dtype()), all.shape());
    backend.elementwise().convert(stream, all, wide);
    std::vector<std::vector<double>> result(static_cast<std::size_t>(b));
    dispatch_float(wide.dtype(), [&]<class T>() {
      std::vector<Accumulation<T>> host(static_cast<std::size_t>(wide.numel()));
      backend.copy_to_host(stream, wide, TensorView(host.data(), wide.shape()));
      stream.synchronize();
      for (std::int64_t rank = 0, at = 0; rank < group.size(); ++rank) {
        for (std::vector<double>& of_text : result) {
          of_text.insert(of_text.end(), host.begin() + at, host.begin() + at + rows);
          at += rows;
        }
      }
    });
    for (std::vector<double>& of_text : result) of_text.resize(static_cast<std::size_t>(model_.vocabulary().size()));
    return result;
  }

 private:
  void run() {
    // The executor replaces its buffers when the shape changes: earlier runs must have finished with the old ones.
    if (stage_.boundary_shape(0) != last_shape_) model_.backend().compute_stream().synchronize();
    last_shape_ = stage_.boundary_shape(0);
    executor_.run(schedule_);
  }

  train::ParallelModel& model_;
  model::DecodingStage stage_;
  parallel::Schedule schedule_;
  parallel::PipelineExecutor executor_;
  Shape last_shape_;
  Arena memory_;
};

/// Text for which the model's output is not finite.
struct Failure {
  std::int64_t prompt = 0;
  std::int64_t tokens = 0;
};

/// Continues prompts on one replica of a model, several at a time.
class Generator {
 public:
  using Next = std::function<std::optional<Prompt>()>;
  using Done = std::function<void(const Prompt&, const Continuation&)>;

  /// A prompt and its continuation have at most `positions` tokens together. With `together` the data ranks are one
  /// replica, which does the same work several times.
  Generator(train::ParallelModel& model, Communicator& world, std::int64_t positions, const GenerationOptions& options,
            bool together)
      : model_(model),
        options_(options),
        replica_(world.split(together ? 0 : model.grid().position(world.rank()).data, world.rank(), "replica")),
        // The ranks of a replica are in world order: those of the last stage come last.
        chooser_(replica_->size() - replica_->size() / model.grid().pipeline_size()),
        capacity_(whole_rows(model, model.config().max_positions)),
        decoder_(model, checked_batch(model, world, std::min(positions, capacity_), options.batch_size),
                 std::min(positions, capacity_)) {}

  /// Continues the prompts that `next` returns, until there are no more or a text fails. Collective over the replica.
  std::optional<Failure> run(const Next& next, const Done& done) {
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

  /// Time of this rank for prompts: their positions and the choices of the first new tokens.
  double prompts_s() const { return prompts_s_; }

 private:
  struct Text {
    Prompt prompt;
    Continuation continuation;
    bool finished = false;

    std::int64_t size() const { return std::ssize(prompt.tokens) + std::ssize(continuation.tokens); }
    /// Returns the latest `count` tokens, or all if there are fewer.
    std::vector<std::int32_t> latest(std::int64_t count) const {
      std::vector<std::int32_t> all = prompt.tokens;
      all.insert(all.end(), continuation.tokens.begin(), continuation.tokens.end());
      if (std::ssize(all) > count) all.erase(all.begin(), all.end() - count);
      return all;
    }
  };

  /// Returns the largest multiple of DecodingStage::row_multiple up to `positions`.
  static std::int64_t whole_rows(train::ParallelModel& model, std::int64_t positions) {
    const std::int64_t multiple = model::DecodingStage::row_multiple(model.stage().context());
    return positions / multiple * multiple;
  }

  /// Ends all texts if any rank was asked to.
  void interrupt() {
    if (all_reduce_number(*replica_, std::int32_t{options_.interrupted()}, ReduceOp::max) == 0) return;
    for (Text& text : texts_) {
      if (!text.finished) text.continuation.reason = FinishReason::interrupted;
      text.finished = true;
    }
  }

  /// Returns the batch size, or throws EnvironmentError if its cache exceeds a rank's memory. Collective.
  static std::int64_t checked_batch(train::ParallelModel& model, Communicator& world, std::int64_t positions,
                                    std::int64_t batch_size) {
    const model::LayerShape& shape = model.stage().shape();
    const double bytes = static_cast<double>(model.stage().layers().size()) * static_cast<double>(batch_size) *
                         static_cast<double>(positions * 2 * shape.kv_columns()) *
                         static_cast<double>(size_of(shape.dtype));
    collectively(world, [&] {
      const auto free = static_cast<double>(model.backend().free_memory_bytes());
      TRIREME_CHECK(bytes < free, EnvironmentError,
                    "generation failed: keys and values of {} texts of {} tokens take {:.1f} GiB on a rank, which has "
                    "{:.1f} GiB free. Try a smaller <batch_size>.",
                    batch_size, positions, bytes / (1 << 30), free / (1 << 30));
    });
    return batch_size;
  }

  /// Runs the newest token of each text.
  void step() {
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

  /// Chooses the next token of each text from `first` on, the texts of the last run.
  std::optional<Failure> choose(std::int64_t first) {
    constexpr std::int32_t none = -1;
    const std::int64_t count = std::ssize(texts_) - first;
    const bool wants_probabilities = options_.log_probabilities.has_value();
    const std::int64_t each =
        wants_probabilities ? 1 + std::min(*options_.log_probabilities, model_.vocabulary().size()) : 1;
    std::vector<std::int32_t> tokens;
    std::vector<double> values;
    const std::vector<std::vector<double>> logits = decoder_.logits();
    if (replica_->rank() == chooser_) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::vector<double>& own = logits[static_cast<std::size_t>(i)];
        const Text& text = texts_[static_cast<std::size_t>(first + i)];
        if (!std::ranges::all_of(own, [](double logit) { return std::isfinite(logit); })) {
          tokens.insert(tokens.end(), static_cast<std::size_t>(each), none);
          values.insert(values.end(), static_cast<std::size_t>(each), 0);
          continue;
        }
        std::vector<double> chosen_from = own;
        penalise_repetitions(chosen_from, text.latest(text.size()), options_.sampling.repetition_penalty);
        const std::int32_t token = choose_token(chosen_from, options_.sampling, text.size(), text.prompt.number);
        if (!wants_probabilities) {
          tokens.push_back(token);
          continue;
        }
        for (const TokenProbability& likely : log_probabilities(own, token, each - 1)) {
          tokens.push_back(likely.token);
          values.push_back(likely.log_probability);
        }
      }
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
  void broadcast(std::vector<T>& data, std::int64_t size) {
    data.resize(static_cast<std::size_t>(size));
    ImmediateStream host;
    replica_->broadcast(host, TensorView(data.data(), {size}), chooser_).wait(host);
  }

  void append(Text& text, std::int32_t token) {
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

  /// Delivers the finished texts and moves the last texts to their slots, so that the used slots stay contiguous.
  void release_finished(const Done& done) {
    for (std::int64_t i = std::ssize(texts_) - 1; i >= 0; --i) {
      Text& text = texts_[static_cast<std::size_t>(i)];
      if (!text.finished) continue;
      done(text.prompt, text.continuation);
      const std::int64_t last = std::ssize(texts_) - 1;
      if (i != last) {
        decoder_.copy(last, i);
        text = std::move(texts_.back());
      }
      decoder_.clear(last);
      texts_.pop_back();
    }
  }

  train::ParallelModel& model_;
  const GenerationOptions& options_;
  std::unique_ptr<Communicator> replica_;
  int chooser_;  // rank of the replica that samples: the first one of the last stage
  std::int64_t capacity_;
  Decoder decoder_;
  std::vector<Text> texts_;  // text i is in slot i of the cache
  double prompts_s_ = 0;
};

/// Throws NumericalError on all ranks if a text failed on any; reports the failure of the first prompt.
void check_failures(const train::ParallelModel& model, Communicator& world, const std::optional<Failure>& failure) {
  // Codes are ordered such that the maximum over the ranks is the failure of the first prompt.
  constexpr std::int64_t tokens_bits = 24, max_tokens = (std::int64_t{1} << tokens_bits) - 1;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() >> tokens_bits;
  const std::int64_t mine =
      failure ? ((most - failure->prompt) << tokens_bits) + std::min(failure->tokens, max_tokens) : std::int64_t{-1};
  const std::int64_t code = all_reduce_number(world, mine, ReduceOp::max);
  TRIREME_CHECK(code < 0, NumericalError,
                "generation failed: the model's output is not finite after {} tokens of prompt {}; its training "
                "diverged, or its weights are too large for {}. Try an earlier checkpoint, or a wider <dtype>.",
                code & max_tokens, most - (code >> tokens_bits) + 1, name_of(model.execution().dtype));
}

/// Delivers records in the order of their numbers.
class OrderedRecords {
 public:
  OrderedRecords(std::int64_t first, const std::function<void(const std::string&)>& take) : next_(first), take_(take) {}

  void add(std::int64_t number, std::string record) {
    waiting_.emplace(number, std::move(record));
    for (; !waiting_.empty() && waiting_.begin()->first == next_; ++next_) {
      take_(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
    }
  }

 private:
  std::int64_t next_;
  const std::function<void(const std::string&)>& take_;
  std::map<std::int64_t, std::string> waiting_;
};

/// Appends a record to `to`: number, size, a line feed, the record.
void pack(std::int64_t number, const std::string& record, std::string& to) {
  to += fmt::format("{} {}\n{}", number, record.size(), record);
}

void unpack(const std::string& text, OrderedRecords& to) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t space = text.find(' ', at), line = text.find('\n', space);
    const std::size_t size = std::stoull(text.substr(space + 1, line - space - 1));
    to.add(std::stoll(text.substr(at, space - at)), text.substr(line + 1, size));
    at = line + 1 + size;
  }
}

}  // namespace

std::vector<Continuation> generate(train::ParallelModel& model, Communicator& world, const std::vector<Prompt>& prompts,
                                   const GenerationOptions& options) {
  std::int64_t positions = 0;
  for (const Prompt& prompt : prompts) {
    TRIREME_CHECK(!prompt.tokens.empty(), ConfigError, "<prompt> is empty. Try a prompt of at least one character.");
    const std::int64_t most = std::min(prompt.max_new_tokens, model.config().max_positions);
    positions = std::max(positions, std::ssize(prompt.tokens) + most);
  }
  Generator generator(model, world, positions, options, true);
  std::vector<Continuation> results(prompts.size());
  std::size_t given = 0;
  const auto next = [&]() -> std::optional<Prompt> {
    if (given == prompts.size()) return {};
    Prompt prompt = prompts[given];
    prompt.id = std::to_string(given++);
    return prompt;
  };
  check_failures(model, world, generator.run(next, [&](const Prompt& prompt, const Continuation& continuation) {
    results[std::stoull(prompt.id)] = continuation;
  }));
  return results;
}

GenerationCounts generate_all(train::ParallelModel& model, Communicator& world, const PromptSource& prompts,
                              std::int64_t first, const GenerationOptions& options, const RecordSink& sink) {
  constexpr std::int64_t batches_between_exchanges = 16;
  const bool together = model.grid().token_group_size() > 1;  // experts need the tokens of all their ranks at a time
  const std::int64_t data_size = together ? 1 : model.grid().data_size();
  parallel::GridPosition place = model.grid().position(world.rank());
  const int first_of_replica = together ? 0 : model.grid().rank({.data = place.data});
  const bool records = world.rank() == first_of_replica;
  if (together) place.data = 0;
  Generator generator(model, world, prompts.positions, options, together);
  OrderedRecords ordered(first, sink.take);
  GenerationCounts counts;
  std::string packed;
  const auto done = [&](const Prompt& prompt, const Continuation& continuation) {
    if (!records) return;
    counts.prompt_tokens += std::ssize(prompt.tokens);
    counts.new_tokens += std::ssize(continuation.tokens);
    std::string record = sink.record(prompt, continuation);
    if (world.rank() == 0) return ordered.add(prompt.number, std::move(record));
    pack(prompt.number, record, packed);
  };
  const std::int64_t round =
      data_size == 1 ? prompts.count : batches_between_exchanges * options.batch_size * data_size;
  while (first < prompts.count) {
    const std::int64_t end = std::min(prompts.count, first + round);
    std::int64_t number = first + place.data;
    const auto next = [&]() -> std::optional<Prompt> {
      if (number >= end) return {};
      return prompts.read(std::exchange(number, number + data_size));
    };
    check_failures(model, world, generator.run(next, done));
    if (data_size > 1) {
      for (const std::string& text : gather_text(world, std::exchange(packed, {}), 0)) unpack(text, ordered);
    }
    first = end;
  }
  std::int64_t sums[] = {counts.prompt_tokens, counts.new_tokens};
  all_reduce_numbers(world, sums, ReduceOp::sum);
  return {sums[0], sums[1], generator.prompts_s()};
}

}  // namespace trireme::infer
