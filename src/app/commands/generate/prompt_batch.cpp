#include "src/app/commands/generate/prompt_batch.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "io/corpus/prepare_files.hpp"
#include "io/json/json_text.hpp"
#include "io/json/prompt_json.hpp"
#include "io/metrics/append_file.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/mapped_file.hpp"
#include "src/app/job/progress_bar.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/prepare/text_reader.hpp"

namespace trireme::app {
namespace {

/// Reads the prompts of a file one by one, in memory that does not grow with the file. Texts from nothing begin with
/// the end of a document.
class PromptReader {
 public:
  PromptReader(const GenerateOptions& batch, const data::Tokenizer& tokenizer, const model::ModelConfig& model)
      : path_(batch.prompts),
        text_count_(batch.text_count.value_or(0)),
        tokenizer_(tokenizer),
        model_(model),
        max_new_tokens_(batch.max_new_tokens) {
    // The JSON reader checks UTF-8.
    if (!path_.empty()) {
      reader_.emplace(io::prepare_files(), std::vector<std::string>{path_},
                      prepare::TextReaderOptions{.format = prepare::TextFormat::json_lines, .check_utf8 = false});
    }
  }

  /// Moves on to the next prompt; returns false after the last.
  bool next() {
    ++number_;
    return reader_ ? reader_->next(line_) : number_ < text_count_;
  }
  /// Returns the current prompt. Throws DataError if the model cannot continue it.
  infer::Prompt prompt() const {
    if (!reader_) return {number_, std::to_string(number_ + 1), {tokenizer_.end_of_document()}, max_new_tokens_};
    io::PromptLine line = io::parse_prompt(line_.bytes, where());
    infer::Prompt prompt;
    prompt.number = number_;
    prompt.id = line.id.empty() ? std::to_string(line_.position) : line.id;
    prompt.tokens = std::move(line.tokens);
    prompt.max_new_tokens = line.max_new_tokens.value_or(max_new_tokens_);
    if (line.text) encode(*line.text, prompt.tokens);
    TRIREME_CHECK(!prompt.tokens.empty(), DataError, "{}: the prompt is empty: give it at least one token", where());
    TRIREME_CHECK(std::ssize(prompt.tokens) <= model_.max_positions, DataError,
                  "{}: the prompt has {} tokens, but the model has {} positions: shorten it", where(),
                  prompt.tokens.size(), model_.max_positions);
    const std::int32_t greatest = *std::ranges::max_element(prompt.tokens);
    TRIREME_CHECK(greatest < model_.vocabulary, DataError, "{}: token {} is not in the model's vocabulary of {}",
                  where(), greatest, model_.vocabulary);
    return prompt;
  }
  /// Number of the current prompt, from 0.
  std::int64_t number() const { return number_; }

 private:
  /// Returns "FILE:LINE".
  std::string where() const { return fmt::format("{}:{}", path_, line_.position); }
  void encode(const std::string& text, std::vector<std::int32_t>& tokens) const {
    try {
      tokens = tokenizer_.encode_prompt(text);
    } catch (const DataError& error) {
      throw DataError("{}: {}", where(), error.what());
    }
  }

  std::string path_;
  std::int64_t text_count_;
  std::optional<prepare::TextReader> reader_;  // none for texts from nothing
  prepare::TextPiece line_;
  const data::Tokenizer& tokenizer_;
  const model::ModelConfig& model_;
  std::int64_t max_new_tokens_;
  std::int64_t number_ = -1;
};

/// Results written by an earlier run.
struct EarlierResults {
  std::vector<std::string> ids;  ///< as JSON, in order
  std::int64_t bytes = 0;        ///< size of its complete lines
};

/// Reads the complete lines of a file of results. The last line of a killed run may be incomplete.
EarlierResults read_results(const std::string& path) {
  EarlierResults results;
  if (!io::is_there(path)) return results;
  const io::MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', begin)) {
    results.ids.push_back(io::json_value(text.substr(begin, end - begin), "id"));
    begin = end + 1;
  }
  results.bytes = static_cast<std::int64_t>(begin);
  return results;
}

/// Checks every prompt. Returns their number and the maximum length of one with its continuation; `read` stays empty.
/// The prompts must start with those of the earlier results.
infer::PromptSource check_prompts(const GenerateOptions& batch, const data::Tokenizer& tokenizer,
                                  const model::ModelConfig& model, const EarlierResults& earlier) {
  PromptReader reader(batch, tokenizer, model);
  infer::PromptSource source;
  while (reader.next()) {
    const infer::Prompt prompt = reader.prompt();
    const auto at = static_cast<std::size_t>(source.count++);
    source.positions =
        std::max(source.positions, std::ssize(prompt.tokens) + std::min(prompt.max_new_tokens, model.max_positions));
    TRIREME_CHECK(
        at >= earlier.ids.size() || earlier.ids[at] == prompt.id, DataError,
        "--resume: line {} of {} has the id {}, but prompt {}{} has {}: resume with the prompts that it was made "
        "from",
        at + 1, batch.output, shortened(earlier.ids[at]), at + 1,
        batch.text_count ? " of --num-samples" : " of " + batch.prompts, shortened(prompt.id));
  }
  TRIREME_CHECK(source.count > 0, DataError, "{} has no prompt", batch.prompts);
  TRIREME_CHECK(source.count >= std::ssize(earlier.ids), DataError, "--resume: {} has {} lines, but {} only {} prompts",
                batch.output, earlier.ids.size(), batch.text_count ? "--num-samples" : batch.prompts, source.count);
  return source;
}

/// Returns the position of the first of `stops` in `text`; npos if there is none.
std::size_t first_stop(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops) first = std::min(first, text.find(stop));
  return first;
}

}  // namespace

void GenerateOptions::declare(Options& options) {
  options.section("Text");
  options.add("prompt", &prompt, "TEXT", "Text to continue.");
  options.add("max-new-tokens", &max_new_tokens, "N", "Maximum number of tokens to add to a text.", at_least(0));
  options.add("temperature", &sampling.temperature, "X", "Divides the logits; 0: always the likeliest token.",
              at_least(0));
  options.add("top-k", &sampling.top_k, "K", "Sample from the K likeliest tokens; 0: all.", at_least(0));
  options.add("top-p", &sampling.top_p, "P", "Sample from the likeliest tokens of this total probability; 0: all.",
              between(0, 1));
  options.add("seed", &sampling.seed, "N", "Seed of the sampling; the same seed gives the same text.", at_least(0));
  options.section("Many prompts");
  options.add("prompts", &prompts, "FILE",
              "Instead of --prompt: JSON lines with \"prompt\", a text, or \"tokens\", ids; optionally \"id\" and "
              "\"max_new_tokens\".");
  options.add("num-samples", &text_count, "N",
              "Instead of --prompt: write N texts that begin with the end of a document, to --output.", at_least(1));
  options.add("output", &output, "FILE",
              "Results, a line of JSON per prompt, in order: \"id\", \"text\", \"tokens\", \"finish_reason\".");
  options.add_flag("resume", &resume, "Resume the file of --output after its last complete line.");
  options.add("batch-size", &batch_size, "N", "Prompts that each data rank processes at a time.", countable());
  options.add("stop", &stop, "TEXT", "Texts that end a continuation, just before the first of them.");
  options.add("logprobs", &log_probabilities, "K",
              "Add \"logprobs\", the log-probability of each token, and if K is above 0 \"top_logprobs\", those of "
              "the K likeliest.",
              at_least(0));
  model.declare(options);
}

void GenerateOptions::check(const Options& options) const {
  const int sources = options.given("prompt") + options.given("prompts") + options.given("num-samples");
  TRIREME_CHECK(sources == 1, ConfigError, "--prompt, --prompts or --num-samples must be given, {}",
                sources == 0 ? "one of them" : "only one of them");
  std::vector<std::string> idle;
  if (sampling.top_k > 0) idle.emplace_back("--top-k");
  if (sampling.top_p > 0) idle.emplace_back("--top-p");
  if (options.given("seed")) idle.emplace_back("--seed");
  TRIREME_CHECK(sampling.temperature > 0 || idle.empty(), ConfigError,
                "--temperature 0 always takes the likeliest token and excludes {}: leave out one or the other",
                fmt::join(idle, ", "));
  if (options.given("prompt")) {
    for (const char* name : {"output", "resume", "batch-size", "stop", "logprobs"}) {
      TRIREME_CHECK(!options.given(name), ConfigError, "--{} needs --prompts or --num-samples", name);
    }
    return;
  }
  TRIREME_CHECK(!output.empty(), ConfigError, "--{} needs --output, the file of the results",
                text_count ? "num-samples" : "prompts");
  TRIREME_CHECK(std::ranges::find(stop, "") == stop.end(), ConfigError, "--stop: a text is empty");
}

void continue_prompts(Job& job, SavedModel& saved, const data::Tokenizer& tokenizer, const GenerateOptions& batch) {
  const model::ModelConfig& model = saved.model->config();
  TRIREME_CHECK(!batch.text_count || tokenizer.end_of_document() >= 0, ConfigError,
                "--num-samples: texts begin with the token that ends a document, and this tokenizer has none. Try "
                "--prompts.");
  infer::PromptSource source;
  EarlierResults earlier;
  std::optional<PromptReader> prompts;
  std::optional<io::AppendFile> output;
  collectively(*job.world, [&] {
    TRIREME_CHECK(batch.resume || !io::is_there(batch.output), ConfigError,
                  "--output {} exists: remove it, or add --resume to continue it", batch.output);
  });
  // Locks earlier results before reading them. A new file is created only once all prompts are valid.
  collectively(*job.world, [&] {
    if (job.is_root() && batch.resume) output.emplace("--output", batch.output);
  });
  collectively(*job.world, [&] {
    if (batch.resume) earlier = read_results(batch.output);
    source = check_prompts(batch, tokenizer, model, earlier);
    prompts.emplace(batch, tokenizer, model);
  });
  collectively(*job.world, [&] {
    if (!job.is_root()) return;
    if (!output) output.emplace("--output", batch.output);
    if (batch.resume) output->cut(earlier.bytes);
  });
  source.read = [&](std::int64_t number) {
    while (prompts->number() < number) {
      TRIREME_CHECK(prompts->next(), DataError, "{} became shorter while it was read", batch.prompts);
    }
    return prompts->prompt();
  };

  infer::GenerationOptions options;
  options.sampling = batch.sampling;
  options.end_of_document = tokenizer.end_of_document();
  options.batch_size = batch.batch_size;
  options.log_probabilities = batch.log_probabilities;
  const auto text_of = [&](std::span<const std::int32_t> tokens) {
    std::string text;
    tokenizer.decode(tokens, text);
    return text;
  };
  if (!batch.stop.empty()) {
    options.stops = [&](std::span<const std::int32_t> tokens) {
      return first_stop(text_of(tokens), batch.stop) != std::string::npos;
    };
  }
  const auto begun = static_cast<std::int64_t>(earlier.ids.size());
  if (begun > 0 && job.is_root()) log::info("resuming after {} of {} prompts", begun, source.count);
  LoggedProgress progress("generating", "continued", "prompts");
  std::int64_t finished = begun;
  if (job.is_root()) progress.update(finished, source.count);
  infer::RecordSink sink;
  sink.record = [&](const infer::Prompt& prompt, const infer::Continuation& continuation) {
    std::string text = text_of(continuation.tokens);
    text.resize(std::min(text.size(), first_stop(text, batch.stop)));
    return io::continuation_json(prompt.id, text, continuation) + "\n";
  };
  sink.take = [&](const std::string& line) {
    output->append(line);
    progress.update(++finished, source.count);
  };
  const Timer timer;
  const infer::GenerationCounts counts = infer::generate_all(*saved.model, *job.world, source, begun, options, sink);
  const double elapsed_s = timer.elapsed_s();
  progress.end();
  if (!job.is_root()) return;
  log::info(
      "continued {} prompts of {} tokens by {} tokens in {:.2f} s, {:.2f} s of it for the prompts: {:.1f} tokens/s",
      source.count - begun, counts.prompt_tokens, counts.new_tokens, elapsed_s, counts.prompts_s,
      static_cast<double>(counts.new_tokens) / elapsed_s);
}

}  // namespace trireme::app
