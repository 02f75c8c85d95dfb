#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <optional>
#include <set>

#include "io/h5/file.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/folder.hpp"
#include "src/app/commands/commands.hpp"
#include "src/app/commands/eval/eval_options.hpp"
#include "src/app/commands/eval/fine_tuned.hpp"
#include "src/app/commands/eval/token_progress.hpp"
#include "src/app/commands/eval/zero_shot_task.hpp"
#include "src/app/commands/finetune/task_data.hpp"
#include "src/app/job/job.hpp"
#include "src/app/megatron/translation.hpp"
#include "src/app/options/text_files.hpp"
#include "src/app/run_config/run_attributes.hpp"
#include "src/base/log.hpp"
#include "src/infer/logits.hpp"
#include "src/infer/perplexity.hpp"

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
  return {{{"task", std::string("perplexity")},
           {"tokens", result.tokens},
           {"loss", result.loss},
           {"perplexity", result.perplexity}},
          result.loss};
}

void log_bad_lines(const data::BadLines& bad_lines) {
  for (const std::string& message : bad_lines.messages()) log::warn("skipped {}", message);
  if (bad_lines.count() > 0) log::warn("skipped {} bad lines in total", bad_lines.count());
}

void log_reading(const EvalOptions& o, const ZeroShotTask& task, const data::BadLines& bad_lines) {
  log_bad_lines(bad_lines);
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
  const infer::TextScores scores = scores_of(*saved.model, *task.texts, job.is_root());
  Figures figures = task.figures(scores.scores);
  figures.insert(figures.begin(), {"task", o.tasks});
  if (bad_lines.count() > 0) figures.emplace_back("skipped_lines", bad_lines.count());
  return {std::move(figures), data::total(scores.scores).loss};
}

/// Adds a metric under the program's names.
void add_metric(const data::BenchmarkMetric& metric, std::int64_t examples, Figures& figures) {
  const bool is_accuracy = metric.name.starts_with("acc");
  const std::string suffix = metric.name == "acc_norm" ? "_normalized" : "";
  const std::string name = is_accuracy ? "accuracy" + suffix : std::string(metric.name);
  if (is_accuracy) {
    figures.emplace_back("correct" + suffix,
                         static_cast<std::int64_t>(std::llround(metric.value * static_cast<double>(examples))));
  }
  figures.emplace_back(name, metric.value);
  if (metric.standard_error) figures.emplace_back(name + "_standard_error", *metric.standard_error);
}

/// Measures the tasks in lm-eval's definition: prints a line for each, and writes the file of results. Throws
/// NumericalError before the line of a task with a loss that is not finite.
void measure_benchmarks(const EvalOptions& o, Job& job, const SavedModel& saved) {
  constexpr std::int64_t bootstrap_iterations = 100'000;  // lm-eval's
  const std::int64_t sequence_length = saved.model->execution().sequence_length;
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::vector<io::MeasuredTask> measured;
  std::vector<io::MeasuredGroup> groups;
  collectively(*job.world, [&] { tokenizer = prompt_tokenizer_of(saved.description, o.model); });
  for (const std::string& name : o.benchmarks) {
    std::optional<BenchmarkRun> run;
    data::BadLines bad_lines(o.skip_bad_lines);
    collectively(*job.world, [&] {
      const data::Benchmark& benchmark = *data::find_benchmark(name);
      run.emplace(benchmark, o.benchmark, o.data_path, *tokenizer,
                  data::LengthLimit{sequence_length, o.cut_long_examples.value_or(benchmark.is_published)}, bad_lines);
    });
    if (job.is_root()) log_bad_lines(bad_lines);
    if (job.is_root()) run->log();
    std::vector<io::MeasuredTask> parts =
        run->measure(*saved.model, job.is_root() ? bootstrap_iterations : 0, job.is_root());
    const std::vector<io::MeasuredGroup> part_groups = groups_of(parts);
    Figures figures = {{"task", name}, {"tokens", run->scored_tokens()}, {"choices", run->texts()}};
    std::int64_t examples = 0;
    double losses = 0;
    for (const io::MeasuredTask& part : parts) {
      examples += part.result.examples;
      losses += part.result.loss.value * static_cast<double>(part.result.examples);
    }
    check_finite(std::isfinite(losses), o.model.load, saved);
    figures.emplace_back("loss", losses / static_cast<double>(examples));
    if (parts.size() == 1) figures.emplace_back("loss_standard_error", parts.front().result.loss.standard_error);
    figures.emplace_back("total", examples);
    for (const data::BenchmarkMetric& metric :
         parts.size() == 1 ? parts.front().result.metrics : part_groups.front().metrics) {
      add_metric(metric, examples, figures);
    }
    if (bad_lines.count() > 0) figures.emplace_back("skipped_lines", bad_lines.count());
    if (job.is_root()) print_figures(figures);
    std::ranges::move(parts, std::back_inserter(measured));
    std::ranges::copy(part_groups, std::back_inserter(groups));
  }
  const io::MeasuredSettings settings{o.model.load,         std::string(name_of(saved.model->execution().dtype)),
                                      o.micro_batch_size,   sequence_length,
                                      bootstrap_iterations, o.benchmark.shot_seed,
                                      o.benchmark.limit};
  collectively(*job.world, [&] {
    if (job.is_root() && !o.output.empty()) io::write_durably(o.output, benchmark_json(measured, groups, settings));
  });
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

/// Returns the files of data that an evaluation reads.
std::vector<std::string> inputs_of(const EvalOptions& o) {
  std::vector<std::string> inputs = o.data_paths;
  if (o.task == EvalTask::fine_tuned) {
    for (const std::string& path : o.data_paths) {
      std::ranges::move(task_files(o.fine_tuned.task, path), std::back_inserter(inputs));
    }
  }
  for (const std::string& name : o.benchmarks) {
    std::ranges::move(o.benchmark.files(*data::find_benchmark(name), o.data_path), std::back_inserter(inputs));
  }
  return inputs;
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
  collectively(*job.world, [&] {
    for (const std::string& file : {o.output, o.logits_file, o.fine_tuned.predictions_file, o.fine_tuned.n_best_file}) {
      if (job.is_root() && !file.empty()) io::check_writable(file);  // fails before the work
    }
    std::ranges::for_each(o.data_paths, io::check_there);
    std::vector<std::string> outputs{o.output, o.logits_file};
    for (const std::string& file : {o.fine_tuned.predictions_file, o.fine_tuned.n_best_file}) {
      outputs.push_back(file);
      for (std::size_t i = 0; o.data_paths.size() > 1 && !file.empty() && i < o.data_paths.size(); ++i) {
        outputs.push_back(fmt::format("{}.{}", file, i));
      }
    }
    check_outputs(outputs, inputs_of(o));
  });
  std::shared_ptr<data::TokenStore> corpus;
  if (o.task == EvalTask::perplexity) {
    corpus = open_corpus(*job.world, o.data_path);
    collectively(*job.world, [&] { check_outputs({o.output, o.logits_file}, token_files(*corpus)); });
  }
  const auto settle = [&](const model::ModelConfig& config, train::ExecutionConfig& execution) {
    translation->check_model(config);
    execution.sequence_length = o.sequence_length.value_or(execution.sequence_length);
    execution.micro_batch_size = o.micro_batch_size;
    execution.cross_entropy_chunks = o.cross_entropy_chunks;
    model::check_sequence_length(config, execution.sequence_length);
  };
  if (o.task == EvalTask::fine_tuned) {
    evaluate_fine_tuned(o, job, settle);
    return 0;
  }
  const std::unique_ptr<SavedModel> saved = load_model(job, o.model, settle);
  Evaluation result;
  if (corpus) {
    result = measure_corpus(job, *saved, *corpus);
  } else if (o.task == EvalTask::benchmarks) {
    measure_benchmarks(o, job, *saved);
  } else {
    result = measure_task(o, job, *saved);
  }
  if (job.is_root() && !result.figures.empty()) print_figures(result.figures);
  if (!o.logits_file.empty()) {
    write_logits(*saved->model, infer::perplexity_windows(*saved->model, *corpus), o.logits_samples, o.logits_file);
  }
  check_finite(std::isfinite(result.loss), o.model.load, *saved);
  return 0;
}

}  // namespace trireme::app
