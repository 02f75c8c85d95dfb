#include "src/app/commands/commands.hpp"
#include "src/app/commands/generate/prompt_batch.hpp"

#include <fmt/ranges.h>

#include <cstdio>

#include "src/app/job.hpp"
#include "src/app/options/options.hpp"
#include "src/app/saved_model.hpp"
#include "src/train/generation.hpp"

namespace trireme::app {
namespace {

/// Throws ConfigError where an option chooses among tokens, but --temperature 0 always takes the likeliest.
void check_sampling(const Options& options, const train::SamplingOptions& sampling) {
  if (sampling.temperature > 0) return;
  std::vector<std::string> idle;
  if (sampling.top_k > 0) idle.emplace_back("--top-k");
  if (sampling.top_p > 0) idle.emplace_back("--top-p");
  if (options.given("seed")) idle.emplace_back("--seed");
  TRIREME_CHECK(idle.empty(), ConfigError,
                "--temperature 0 always takes the likeliest token and excludes {}: leave out one or the other",
                fmt::join(idle, ", "));
}

}  // namespace

int generate_command(const CommandLine& line) {
  SavedModelOptions model;
  PromptBatchOptions batch;
  std::string prompt;
  std::int64_t max_new_tokens = 100;
  train::SamplingOptions sampling;
  Options options(line.command(), "Continues a text, or those of a file, with a trained model.");
  options.section("Text");
  options.add("prompt", &prompt, "TEXT", "The text to continue.");
  options.add("max-new-tokens", &max_new_tokens, "N", "Tokens to add to a text at most.", at_least(0));
  options.add("temperature", &sampling.temperature, "X", "Divides the logits; 0: always the likeliest token.",
              at_least(0));
  options.add("top-k", &sampling.top_k, "K", "Choose among the K likeliest tokens; 0: all.", at_least(0));
  options.add("top-p", &sampling.top_p, "P", "Choose among the likeliest tokens of this probability together; 0: all.",
              between(0, 1));
  options.add("seed", &sampling.seed, "N", "The same seed gives the same text.", at_least(0));
  batch.declare(options);
  model.declare(options);
  if (!line.read(options)) return 0;
  batch.check(options);
  check_sampling(options, sampling);

  Job job(line.environment(), options, model.grid, model.device);
  const std::unique_ptr<SavedModel> saved =
      load_model(job, model, [&](const model::ModelConfig& config, train::ExecutionConfig& execution) {
        execution.sequence_length = config.max_positions;
      });
  const std::unique_ptr<data::Tokenizer> tokenizer = tokenizer_of(saved->description);
  if (options.given("prompts")) {
    continue_prompts(job, *saved, *tokenizer, batch, sampling, max_new_tokens);
    return 0;
  }
  std::vector<std::int32_t> ids;
  tokenizer->encode(prompt, ids);
  const std::vector<std::int32_t> continuation =
      train::generate(*saved->model, *job.world, ids, max_new_tokens, tokenizer->end_of_document(), sampling);
  if (job.speaks()) {
    std::string text = prompt;
    tokenizer->decode(continuation, text);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fputc('\n', stdout);
  }
  return 0;
}

}  // namespace trireme::app
