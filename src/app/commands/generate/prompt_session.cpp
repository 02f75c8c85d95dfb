#include "src/app/commands/generate/prompt_session.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "io/json/prompt_json.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/app/job/progress_bar.hpp"
#include "src/app/options/text_files.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/base/timer.hpp"

namespace trireme::app {
namespace {

constexpr std::int64_t max_chat_bytes = std::int64_t{1} << 30;

void log_rate(std::int64_t prompts, const infer::GenerationCounts& counts, double elapsed_s) {
  log::info("continued {} of {} by {} in {:.2f} s, {:.2f} s of it for the prompts: {:.1f} tokens/s",
            counted(prompts, "prompt"), counted(counts.prompt_tokens, "token"), counted(counts.new_tokens, "token"),
            elapsed_s, counts.prompts_s, static_cast<double>(counts.new_tokens) / std::max(elapsed_s, 1e-9));
}

/// Writes to standard output at once. Throws IoError if that fails.
void print_bytes(const std::string& bytes) {
  TRIREME_CHECK(std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size() && std::fflush(stdout) == 0, IoError,
                "cannot write to standard output: {}", std::strerror(errno));
}

}  // namespace

infer::GenerationOptions generation_options(const GenerateOptions& options, const data::Tokenizer& tokenizer,
                                            const ContinuationText& texts) {
  infer::GenerationOptions result;
  result.sampling = options.sampling;
  if (!options.ignore_eos) result.end_tokens = tokenizer.stops();
  result.batch_size = options.batch_size;
  result.log_probabilities = options.log_probabilities;
  if (!options.stop.empty()) {
    result.stops = [&texts](std::span<const std::int32_t> new_tokens) { return texts.stops(new_tokens); };
  }
  return result;
}

void print_text(std::string_view text) { print_bytes(isatty(STDOUT_FILENO) == 1 ? visible(text) : std::string(text)); }

void TextPrinter::observe(const infer::Continuation& continuation) {
  if (!prints_) return;
  const std::string text = texts_.decode(continuation.tokens);
  const std::size_t end = texts_.settled_bytes(text);
  if (end > printed_bytes_) print_text(std::string_view(text).substr(printed_bytes_, end - printed_bytes_));
  printed_bytes_ = std::max(printed_bytes_, end);
}

std::string TextPrinter::finish(infer::Continuation continuation) {
  std::string text = texts_.finish(continuation);
  if (prints_) print_text(text.substr(std::min(printed_bytes_, text.size())) + "\n");
  return text;
}

PromptSession::PromptSession(Job& job, const GenerateOptions& options) : job_(job), options_(options) {
  if (options.reads_stdin()) input_ = read_standard_input(*job.world);
  if (options.source() == TextSource::chat && options.chat != "-") {
    collectively(*job.world, [&] { input_ = io::read_whole_file(options.chat, max_chat_bytes, io::Symlinks::follow); });
  }
  if (options.source() == TextSource::prompts && options.prompts != "-") {
    collectively(*job.world, [&] { io::check_there(options.prompts); });
  }
  if (options.source() == TextSource::prompt && input_.ends_with('\n')) input_.pop_back();
}

EarlierResults PromptSession::open_output() {
  EarlierResults earlier;
  if (options_.writes_to_stdout() || has_output_) return earlier;
  collectively(*job_.world, [&] {
    check_outputs({options_.output}, {options_.file(), options_.chat_template});
    TRIREME_CHECK(options_.resume || !io::is_there(options_.output), ConfigError,
                  "--output {} exists: remove it, or add --resume to continue it", options_.output);
  });
  // Locks earlier results before reading them.
  collectively(*job_.world, [&] {
    if (job_.is_root() && options_.resume) output_.emplace("--output", options_.output);
  });
  collectively(*job_.world, [&] {
    if (options_.resume) earlier = read_results(options_.output);
  });
  return earlier;
}

void PromptSession::run(SavedModel& saved) {
  const std::unique_ptr<data::Tokenizer> tokenizer = options_.source() == TextSource::chat
                                                         ? tokenizer_of(saved.description)
                                                         : prompt_tokenizer_of(saved.description, options_.model);
  const ContinuationText texts(*tokenizer, options_.stop);
  const infer::GenerationOptions generation = generation_options(options_, *tokenizer, texts);
  const model::ModelConfig& model = saved.model->config();
  const EarlierResults earlier = open_output();
  const bool is_first = !std::exchange(has_output_, true);
  infer::PromptSource source;
  std::optional<PromptReader> prompts;
  collectively(*job_.world, [&] {
    source = check_prompts(PromptReader(options_, input_, *tokenizer, model), options_, model, earlier);
    prompts.emplace(options_, input_, *tokenizer, model);
  });
  collectively(*job_.world, [&] {
    if (!job_.is_root() || options_.writes_to_stdout() || !is_first) return;
    if (!output_) output_.emplace("--output", options_.output);
    if (options_.resume) output_->cut(earlier.bytes);
  });
  source.read = [&](std::int64_t number) {
    while (prompts->number() < number) {
      TRIREME_CHECK(prompts->next(), DataError, "{} became shorter while it was read", options_.file());
    }
    return prompts->prompt();
  };
  if (!options_.writes_json() && source.count == 1) return stream(saved, source.read(0), generation, texts);

  infer::RecordSink sink;
  const std::string beginning = options_.prompt == "-" ? input_ : options_.prompt;
  sink.record = [&](const infer::Prompt& prompt, infer::Continuation continuation) {
    const std::string text = texts.finish(continuation);
    if (!options_.writes_json()) return beginning + text + "\n";
    io::ContinuationLabels labels{.id = prompt.id, .likeliest = options_.log_probabilities};
    const bool has_samples = options_.num_samples && options_.source() != TextSource::nothing;
    if (has_samples) labels.sample = prompt.number % options_.samples() + 1;
    if (options_.follow) labels.iteration = saved.description.step;
    return io::continuation_json(labels, text, continuation) + "\n";
  };
  run_all(saved, source, std::ssize(earlier.ids), generation, sink);
}

void PromptSession::stream(SavedModel& saved, const infer::Prompt& prompt, const infer::GenerationOptions& options,
                           const ContinuationText& texts) {
  if (job_.is_root()) print_text(options_.prompt == "-" ? input_ : options_.prompt);
  TextPrinter printer(job_.is_root(), texts);
  infer::GenerationCounts counts{.prompt_tokens = std::ssize(prompt.tokens)};
  const Timer timer;
  infer::GenerationOptions streaming = options;
  streaming.observe = [&](const infer::Prompt&, const infer::Continuation& continuation) {
    if (continuation.tokens.size() == 1) counts.prompts_s = timer.elapsed_s();
    printer.observe(continuation);
  };
  const infer::Continuation continuation = infer::generate(*saved.model, *job_.world, {prompt}, streaming).front();
  printer.finish(continuation);
  counts.new_tokens = std::ssize(continuation.tokens);
  if (job_.is_root()) log_rate(1, counts, timer.elapsed_s());
}

void PromptSession::run_all(SavedModel& saved, const infer::PromptSource& source, std::int64_t first,
                            const infer::GenerationOptions& options, const infer::RecordSink& records) {
  infer::RecordSink sink = records;
  std::int64_t finished = first;
  const bool shows_progress = job_.is_root() && !options_.writes_to_stdout();
  if (first > 0 && job_.is_root()) log::info("resuming after {} of {} prompts", first, source.count);
  LoggedProgress progress("generating", "continued", "prompts");
  if (shows_progress) progress.update(finished, source.count);
  sink.take = [&](const std::string& line) {
    if (output_) {
      output_->append(line);
    } else {
      options_.writes_json() ? print_bytes(line) : print_text(line);
    }
    if (shows_progress) progress.update(++finished, source.count);
  };
  const Timer timer;
  const infer::GenerationCounts counts = infer::generate_all(*saved.model, *job_.world, source, first, options, sink);
  const double elapsed_s = timer.elapsed_s();
  progress.end();
  if (job_.is_root()) log_rate(source.count - first, counts, elapsed_s);
}

}  // namespace trireme::app
