#include "src/app/commands/train/training_samples.hpp"

#include <algorithm>

#include "io/json/prompt_json.hpp"
#include "io/posix/file.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/prepare/text_reader.hpp"

namespace trireme::app {
namespace {

/// Returns the tokenizer that the model keeps; it may have other special tokens than that of the corpus.
std::unique_ptr<data::Tokenizer> tokenizer_of(const TrainPlan& plan) {
  return data::tokenizer_from_payload(plan.attributes.get<std::string>("tokenizer"), plan.blobs.at("tokenizer"));
}

}  // namespace

TrainingSamples::TrainingSamples(const Job& job, const RunConfig& config, const TrainPlan& plan)
    : max_new_tokens_(config.run.sample_tokens), tokenizer_(tokenizer_of(plan)) {
  sampling_.temperature = config.run.sample_temperature;
  sampling_.seed = config.seed;
  const std::string& path = config.run.sample_prompts;
  collectively(*job.world, [&] {
    constexpr std::int64_t max_bytes = std::int64_t{1} << 20;
    const std::string content = io::read_whole_file(path, max_bytes, io::Symlinks::follow);
    const bool is_json = prepare::holds_json(path, prepare::TextFormat::by_name);
    std::int64_t number = 0;
    for (const std::string_view line : split(content, '\n')) {
      ++number;
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      add(line, is_json, fmt::format("{}:{}", path, number), plan.model);
    }
    TRIREME_CHECK(!prompts_.empty(), DataError, "--sample-prompts {}: the file has no prompt", path);
  });
}

void TrainingSamples::add(std::string_view line, bool is_json, const std::string& where,
                          const model::ModelConfig& model) {
  io::PromptLine parsed;
  if (is_json) {
    parsed = io::parse_prompt(line, where);
  } else {
    parsed.text = line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
  }
  infer::Prompt prompt;
  prompt.number = std::ssize(prompts_);
  prompt.max_new_tokens = parsed.max_new_tokens.value_or(max_new_tokens_);
  if (parsed.text) {
    prompt.tokens = prompt_tokens(*tokenizer_, *parsed.text, model, where);
    texts_.push_back(as_utf8(*parsed.text));
  } else {
    check_prompt(parsed.tokens, model, where);
    prompt.tokens = parsed.tokens;
    texts_.push_back(decode(parsed.tokens, false));
  }
  prompts_.push_back(std::move(prompt));
}

std::string TrainingSamples::decode(const std::vector<std::int32_t>& tokens, bool continues_text) const {
  std::string bytes;
  const std::vector<std::int32_t> known = tokenizer_->known_ids(tokens);
  continues_text ? tokenizer_->decode_continuation(known, bytes) : tokenizer_->decode(known, bytes);
  return as_utf8(bytes);
}

std::optional<train::SampleRecord> TrainingSamples::take(train::ParallelModel& model, Communicator& world,
                                                         const train::Progress& progress) const {
  constexpr std::int64_t max_batch = 8;
  infer::GenerationOptions options;
  options.sampling = sampling_;
  options.end_tokens = tokenizer_->stops();
  const std::int64_t wanted = std::min(max_batch, std::ssize(prompts_));
  options.batch_size = infer::texts_that_fit(model, world, infer::longest_text(model, prompts_), wanted);
  if (options.batch_size == 0) {
    log::warn("no samples after iteration {}: a rank's free memory has no room for the keys and values of a text",
              progress.iteration);
    return {};
  }
  std::vector<infer::Continuation> continuations;
  try {
    continuations = infer::generate(model, world, prompts_, options);
  } catch (const NumericalError& error) {  // on all ranks
    log::warn("no samples after iteration {}: {}", progress.iteration, error.what());
    return {};
  }
  train::SampleRecord record{progress.iteration, progress.consumed_samples, {}};
  for (std::size_t i = 0; i < continuations.size(); ++i) {
    record.samples.push_back({texts_[i], decode(continuations[i].tokens, true)});
    log::info("sample {} after {}: {} ... {}", i + 1, progress.iteration, shortened(texts_[i]),
              shortened(record.samples.back().text));
  }
  return record;
}

}  // namespace trireme::app
