#include <cmath>
#include <cstdio>
#include <optional>
#include <set>

#include "io/h5/file.hpp"
#include "io/posix/durable_file.hpp"
#include "src/app/commands/commands.hpp"
#include "src/app/commands/eval/eval_options.hpp"
#include "src/app/commands/eval/zero_shot_task.hpp"
#include "src/app/job/job.hpp"
#include "src/app/job/progress_bar.hpp"
#include "src/app/megatron/translation.hpp"
#include "src/app/run_config/run_attributes.hpp"
#include "src/base/log.hpp"
#include "src/infer/logits.hpp"
#include "src/infer/perplexity.hpp"
#include "src/infer/scoring.hpp"

namespace trireme::app {
namespace {

/// Prints a JSON object in which non-finite numbers are null.
void print_figures(const Figures& figures) {
  std::string line;
  for (const auto& [name, value] : figures) {
    line += fmt::format("{}\"{}\": ", line.empty() ? "{" : ", ", name);
    if (const auto* text = std::get_if<std::string>(&value)) {
      line += '"' + *text + '"';
    } else if (const auto* count = std::get_if<std::int64_t>(&value)) {
      line += std::to_string(*count);
    } else {
      const double number = std::get<double>(value);
      line += std::isfinite(number) ? fmt::format("{:.17g}", number) : "null";
    }
  }
  fmt::print("{}}}\n", line);
  std::fflush(stdout);
}

/// Shows the progress in tokens on rank 0, and the rate at the end.
class TokenProgress {
 public:
  explicit TokenProgress(bool is_root) : is_root_(is_root) {}

  void update(std::int64_t done, std::int64_t total) {
    if (is_root_) bar_.update(done, total);
  }
  /// `positions` counts tokens and padding.
  void end(std::int64_t tokens, std::int64_t positions) {
    bar_.end();
    if (!is_root_) return;
    log::info("read {} tokens, with padding {}, in {:.1f} s: {:.0f} tokens/s", tokens, positions, timer_.elapsed_s(),
              static_cast<double>(tokens) / timer_.elapsed_s());
  }

 private:
  bool is_root_;
  Timer timer_;
  LoggedProgress bar_{"scoring", "scored", "tokens"};
};

/// Figures of an evaluation, and a loss that is finite if all losses of the model are.
struct Evaluation {
  Figures figures;
  double loss = 0;
};

Evaluation measure_corpus(const Job& job, const SavedModel& saved, const data::TokenStore& corpus) {
  const std::unique_ptr<data::Tokenizer> tokenizer = tokenizer_of(saved.description);
  const data::TokenizerComparison comparison = data::compare_tokenizers(
      corpus.info().tokenizer, corpus.info().tokenizer_payload, tokenizer->name(), tokenizer->payload());
  TRIREME_CHECK(comparison.same_ids, DataError,
                "{} was built by the tokenizer {} (digest of ids {}), the model was trained with {} ({}): build the "
                "corpus with the model's tokenizer",
                corpus.name(), corpus.info().tokenizer, corpus.info().ids_digest, tokenizer->name(),
                tokenizer->ids_digest());
  if (!comparison.difference.empty()) {
    log::info("{} and the model have the same ids, but other special tokens: {}", corpus.name(), comparison.difference);
  }
  TokenProgress progress(job.is_root());
  const infer::PerplexityResult result = infer::measure_perplexity(
      *saved.model, corpus, [&](std::int64_t done, std::int64_t total) { progress.update(done, total); });
  const std::int64_t s = saved.model->execution().sequence_length;
  progress.end(result.tokens, (result.tokens + s - 1) / s * s);
  return {{{"tokens", result.tokens}, {"loss", result.loss}, {"perplexity", result.perplexity}}, result.loss};
}

void log_reading(const EvalOptions& o, const ZeroShotTask& task, const data::BadLines& bad_lines) {
  for (const std::string& message : bad_lines.messages()) log::warn("skipped {}", message);
  if (bad_lines.count() > 0) log::warn("skipped {} bad lines in total", bad_lines.count());
  if (o.task == EvalTask::wikitext103) {
    const bool by_path = !o.detokenizer.has_value();
    log::info("detokenizer {}{}", name_of(o.detokenizer.value_or(data::detokenizer_of(o.data_path))),
              by_path ? ", chosen by the file's path; --detokenizer overrides it" : "");
  }
  std::int64_t unscored = 0;
  for (std::int64_t i = 0; i < task.texts->size(); ++i) unscored += task.texts->scored(i) == 0 ? 1 : 0;
  if (o.task == EvalTask::lambada && unscored > 0) {
    log::warn("{} examples of one token have nothing to predict, and count as correct", unscored);
  }
  log::info("{} texts to score, {} tokens of them", task.texts->size(), task.texts->scored());
}

Evaluation measure_task(const EvalOptions& o, Job& job, const SavedModel& saved) {
  data::BadLines bad_lines(o.skip_bad_lines);
  std::unique_ptr<data::Tokenizer> tokenizer;
  ZeroShotTask task;
  collectively(*job.world, [&] {
    tokenizer = prompt_tokenizer_of(saved.description, o.model);
    task = read_zero_shot_task(o, *tokenizer, saved.model->execution().sequence_length, bad_lines);
  });
  if (job.is_root()) log_reading(o, task, bad_lines);
  TokenProgress progress(job.is_root());
  const infer::TextScores scores = infer::score_texts(
      *saved.model, *task.texts, [&](std::int64_t done, std::int64_t total) { progress.update(done, total); });
  progress.end(scores.tokens, scores.positions);
  Figures figures = task.figures(scores.scores);
  if (bad_lines.count() > 0) figures.emplace_back("skipped_lines", bad_lines.count());
  return {std::move(figures), data::total(scores.scores).loss};
}

std::string dataset(std::int64_t sample, const char* name) { return fmt::format("sample-{}/{}", sample, name); }

/// File of logits, on rank 0.
class LogitsFile {
 public:
  LogitsFile(const std::string& path, DType dtype)
      : target_(path), dtype_(dtype), file_(io::h5::File::create(target_.path())) {}

  void begin(const data::SampleSource& source, std::int64_t sample, std::int64_t vocabulary) {
    const data::SampleBuffer buffer(source.sequence_length(), {});
    const data::SampleView& view = buffer.view();
    source.read(sample, view);
    const std::int64_t s = source.sequence_length();
    file_.create_dataset(dataset(sample, "tokens"), DType::int32, {s}).write(TensorView(view.tokens.data(), {s}));
    file_.create_dataset(dataset(sample, "labels"), DType::int32, {s}).write(TensorView(view.labels.data(), {s}));
    logits_.emplace(file_.create_dataset(dataset(sample, "logits"), dtype_, {s, vocabulary}));
  }

  void add(std::int64_t first, std::span<const double> logits) {
    dispatch_float(dtype_, [&]<class T>() {
      std::vector<T> values;
      for (const double logit : logits) values.push_back(T(static_cast<Accumulation<T>>(logit)));
      logits_->write_rows(first, ConstTensorView(values.data(), {std::ssize(values)}));
    });
  }

  void commit() {
    logits_.reset();
    file_.close();
    target_.commit();
  }

 private:
  io::TemporaryFile target_;
  DType dtype_;
  io::h5::File file_;
  std::optional<io::h5::Dataset> logits_;
};

/// Writes the logits of `samples` of `source` to the HDF5 file `path`. Group `sample-N` has `logits` [positions,
/// vocabulary], fp64 for a model in fp64, else fp32; `tokens` [positions] int32; and `labels` [positions] int32, the
/// next tokens, -1 if there is none. Collective. Throws ConfigError for a sample that does not exist or is named
/// twice, and IoError, on every rank.
void write_logits(train::ParallelModel& model, const data::SampleSource& source,
                  const std::vector<std::int64_t>& samples, const std::string& path) {
  TRIREME_CHECK(std::set(samples.begin(), samples.end()).size() == samples.size(), ConfigError,
                "<logits_samples> names a sample twice");
  Communicator& world = model.world();
  const DType dtype = model.execution().dtype == DType::fp64 ? DType::fp64 : DType::fp32;
  std::optional<LogitsFile> file;
  const auto write = [&](const auto& action) {
    collectively(world, [&] {
      if (world.rank() == 0) action();
    });
  };
  write([&] { file.emplace(path, dtype); });
  infer::collect_logits(model, source, samples,
                        [&](std::int64_t sample, std::int64_t first, std::span<const double> logits) {
                          write([&] {
                            if (first == 0) file->begin(source, sample, model.config().vocabulary);
                            file->add(first, logits);
                          });
                        });
  write([&] { file->commit(); });
  log::info("wrote the logits of {} samples to {}", samples.size(), path);
}

}  // namespace

int eval_command(const CommandLine& line) {
  EvalOptions o;
  Options options(line.command(), "Evaluates a trained model.");
  o.declare(options);
  const std::optional<megatron::Translation> translation = megatron::read(line, options);
  if (!translation) return 0;
  o.check(options);
  o.model.settle();

  Job job(line.environment(), options, o.model.grid, o.model.device);
  translation->log();
  std::shared_ptr<data::TokenStore> corpus;
  if (o.task == EvalTask::perplexity) corpus = open_corpus(*job.world, o.data_path);
  const std::unique_ptr<SavedModel> saved =
      load_model(job, o.model, [&](const model::ModelConfig& config, train::ExecutionConfig& execution) {
        translation->check_model(config);
        execution.sequence_length = o.sequence_length.value_or(execution.sequence_length);
        execution.micro_batch_size = o.micro_batch_size;
        execution.cross_entropy_chunks = o.cross_entropy_chunks;
        model::check_sequence_length(config, execution.sequence_length);
      });
  Evaluation result = corpus ? measure_corpus(job, *saved, *corpus) : measure_task(o, job, *saved);
  if (!o.logits_file.empty()) {
    write_logits(*saved->model, infer::perplexity_windows(*saved->model, *corpus), o.logits_samples, o.logits_file);
  }
  if (job.is_root()) {
    result.figures.insert(result.figures.begin(), {"task", std::string(name_of(o.task))});
    print_figures(result.figures);
  }
  TRIREME_CHECK(
      std::isfinite(result.loss), NumericalError,
      "the loss of {} is not finite: its training diverged, or --dtype {} cannot hold its values; load an earlier "
      "step, or evaluate in fp32",
      o.model.load, name_of(saved->model->execution().dtype));
  return 0;
}

}  // namespace trireme::app
