#include "src/infer/generation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "src/comm/host_collectives.hpp"
#include "src/infer/generator.hpp"

namespace trireme::infer {
namespace {

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

std::int64_t longest_text(const train::ParallelModel& model, const std::vector<Prompt>& prompts) {
  const std::int64_t capacity = model.config().max_positions;
  std::int64_t longest = 0;
  for (const Prompt& prompt : prompts) {
    longest = std::max(longest, std::ssize(prompt.tokens) + std::min(prompt.max_new_tokens, capacity));
  }
  return std::min(longest, capacity);
}

std::vector<Continuation> generate(train::ParallelModel& model, Communicator& world, const std::vector<Prompt>& prompts,
                                   const GenerationOptions& options) {
  for (const Prompt& prompt : prompts) {
    TRIREME_CHECK(!prompt.tokens.empty(), ConfigError, "<prompt> is empty. Try a prompt of at least one character.");
  }
  std::vector<Continuation> results(prompts.size());
  std::size_t given = 0;
  const auto next = [&]() -> std::optional<Prompt> {
    if (given == prompts.size()) return {};
    Prompt prompt = prompts[given];
    prompt.id = std::to_string(given++);
    return prompt;
  };
  const auto keep = [&](const Prompt& prompt, const Continuation& continuation) {
    results[std::stoull(prompt.id)] = continuation;
  };
  // Its memory is freed before the error: callers go on after one, and unwinding aborts communicators.
  const std::optional<Failure> failure =
      Generator(model, world, options, {.positions = longest_text(model, prompts)}).run(next, keep);
  check_failures(model, world, failure);
  return results;
}

TextContinuer::TextContinuer(train::ParallelModel& model, Communicator& world, const GenerationOptions& options)
    : model_(model), world_(world), options_(options) {}
TextContinuer::~TextContinuer() = default;

Continuation TextContinuer::run(const Prompt& prompt) {
  const std::int64_t most = model_.config().max_positions;
  const std::int64_t needed = std::min(std::ssize(prompt.tokens) + std::min(prompt.max_new_tokens, most), most);
  if (needed > positions_) {
    generator_.reset();  // first releases its memory
    positions_ = std::min(2 * needed, most);
    generator_ = std::make_unique<Generator>(model_, world_, options_,
                                             GeneratorUse{.positions = positions_, .keeps_cache = true});
  }
  Continuation result;
  bool is_given = false;
  const auto next = [&] { return std::exchange(is_given, true) ? std::nullopt : std::optional(prompt); };
  check_failures(model_, world_, generator_->run(next, [&](const Prompt&, const Continuation& continuation) {
    result = continuation;
  }));
  return result;
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
  Generator generator(model, world, options, {.positions = prompts.positions, .together = together});
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
