#include "src/app/commands/generate/generate_options.hpp"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "src/app/options/problems.hpp"

namespace trireme::app {

void GenerateOptions::declare(Options& options) {
  options.section("Text");
  options.add(
      "prompt", &prompt, "TEXT",
      "Text to continue, \"-\": from standard input without its last line feed. An empty one begins a document. "
      "Without any prompt a user types one after another.");
  options.add_optional(
      "chat", &chat, "[FILE]",
      "Instead of --prompt: a conversation, which the model's chat template writes. Without FILE a user types its "
      "messages. FILE has it in JSON, a list of messages or an object with \"messages\" and optionally \"tools\", or "
      "one "
      "a line; \"-\": standard input.");
  options.add("system", &system, "TEXT", "System message of a conversation that a user types.");
  options.add(
      "chat-template", &chat_template, "NAME|FILE",
      "Template of Jinja for --chat instead of the model's default: another of the model's by name, or a file.");
  options.add_flag("interactive", &interactive_,
                   "Read prompts, or the messages of --chat, line by line from standard input; the default on a "
                   "terminal.");
  options.add(
      "max-new-tokens", &max_new_tokens, "N",
      "Maximum number of tokens to add to a text; for typed messages by default what the model's positions hold.",
      at_least(0));
  options.add("temperature", &sampling.temperature, "X", "Divides the logits; 0: always the likeliest token.",
              at_least(0));
  options.add("top-k", &sampling.top_k, "K", "Sample from the K likeliest tokens; 0: all.", at_least(0));
  options.add("top-p", &sampling.top_p, "P", "Sample from the likeliest tokens of this total probability; 0: all.",
              between(0, 1));
  options.add("min-p", &sampling.min_p, "P",
              "Sample from tokens of at least this share of the likeliest one's probability; 0: all.", between(0, 1));
  options.add("repetition-penalty", &sampling.repetition_penalty, "X",
              "Divide positive logits of the tokens so far by X, and multiply negative ones; 1: none.", above(0));
  options.add("seed", &sampling.seed, "N", "Seed of the sampling; the same seed gives the same text.", at_least(0));
  options.add("num-samples", &num_samples, "N",
              "Continuations of each prompt; without prompts, texts that begin a document.", at_least(1));
  options.add("stop", &stop, "TEXT", "Texts that end a continuation, just before the first of them.");
  options.add_flag("ignore-eos", &ignore_eos, "Continue after tokens that end a text.");
  options.add_flag("follow", &follow,
                   "Continue the prompts again with each new checkpoint of a run, until the program is stopped.");
  options.section("Many prompts");
  options.add("prompts", &prompts, "FILE",
              "Instead of --prompt: JSON lines with \"prompt\", a text, or \"tokens\", ids; optionally \"id\" and "
              "\"max_new_tokens\". \"-\": from standard input.");
  options.add(
      "output", &output, "FILE",
      "Results, a line of JSON per prompt, in order: \"id\", \"text\", \"tokens\", \"finish_reason\". \"-\", the "
      "default for --prompts: standard output. Texts of --prompt appear there, with control characters escaped "
      "if it is a terminal, as mpirun's is.");
  options.add_flag("resume", &resume, "Resume the file of --output after its last complete line.");
  options.add("batch-size", &batch_size, "N", "Texts that each data rank continues at a time.", countable());
  options.add("logprobs", &log_probabilities, "K",
              "Add \"logprobs\", the log-probability of each token, and if K is above 0 \"top_logprobs\", those of "
              "the K likeliest.",
              at_least(0));
  model.declare(options);
}

void GenerateOptions::settle(const Options& options) {
  model.settle();
  const bool types_chat = options.given("chat") && chat.empty();
  const int given = options.given("prompt") + options.given("prompts") + options.given("chat") +
                    (interactive_ && !types_chat ? 1 : 0);
  TRIREME_CHECK(given <= 1, ConfigError,
                "--prompt, --prompts, --chat and --interactive exclude each other: give one of them");
  source_ = options.given("prompt")        ? TextSource::prompt
            : options.given("prompts")     ? TextSource::prompts
            : types_chat                   ? TextSource::conversation
            : options.given("chat")        ? TextSource::chat
            : num_samples && !interactive_ ? TextSource::nothing
                                           : TextSource::interactive;
  if (types_chat && !options.given("max-new-tokens")) max_new_tokens = std::numeric_limits<std::int32_t>::max();
  TRIREME_CHECK(!is_typed() || interactive_ || isatty(STDIN_FILENO) == 1, ConfigError,
                "--prompt, --prompts, --chat FILE or --num-samples must be given where standard input is no terminal; "
                "--interactive reads prompts, or messages of --chat, from it line by line");
  if (source_ == TextSource::prompts || (source_ == TextSource::nothing && output.empty())) {
    if (output.empty()) output = "-";
  }
  Problems problems;
  std::vector<std::string> idle;
  for (const char* name : {"top-k", "top-p", "min-p", "seed"}) {
    if (options.given(name)) idle.push_back(fmt::format("--{}", name));
  }
  problems.expect(sampling.temperature > 0 || idle.empty(),
                  fmt::format("--temperature 0 always takes the likeliest token and excludes {}: leave out one or the "
                              "other",
                              fmt::join(idle, ", ")));
  problems.expect(std::ranges::find(stop, "") == stop.end(), "--stop: a text is empty");
  problems.need(options, {"logprobs"}, writes_json(), "--output FILE or --output -, where results are JSON");
  problems.need(options, {"resume"}, !writes_to_stdout(), "--output FILE");
  problems.need(options, {"chat-template"}, options.given("chat"), "--chat");
  problems.need(options, {"system"}, types_chat, "--chat without a file");
  problems.exclude(!(options.given("chat") && model.without_bos), "no-bos", "chat");
  problems.exclude(!(follow && resume), "follow", "resume");
  problems.exclude(!(follow && model.step), "follow", "ckpt-step");
  for (const char* name : {"output", "follow", "num-samples"}) {
    problems.expect(
        !is_typed() || !options.requested(name),
        fmt::format("--{} and {} exclude each other", name, types_chat ? "--chat without a file" : "--interactive"));
  }
  problems.report();
}

}  // namespace trireme::app
