#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <iterator>

#include "io/posix/folder.hpp"
#include "io/posix/folder_lock.hpp"
#include "src/app/commands/commands.hpp"
#include "src/app/commands/finetune/task_data.hpp"
#include "src/app/commands/finetune/task_results.hpp"
#include "src/app/commands/train/train_plan.hpp"
#include "src/app/commands/train/train_session.hpp"
#include "src/app/job/kernel_test.hpp"
#include "src/app/job/task_classes.hpp"
#include "src/app/megatron/translation.hpp"
#include "src/app/options/text_files.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/train/finetune/epoch_scoring.hpp"
#include "src/train/finetune/task_scoring.hpp"

namespace trireme::app {
namespace {

void print_line(const Job& job, const std::string& line) {
  if (!job.is_root()) return;
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

/// Returns the checkpoint folder of a seed: `folder` unless there are several seeds.
std::string folder_of_seed(const std::string& folder, const TaskOptions& task, std::uint64_t seed) {
  return folder.empty() || task.seeds == 1 ? folder : fmt::format("{}/seed-{}", folder, seed);
}

/// Fine-tunes a model: opens it, reads the data, trains once per seed and prints the results.
class Finetuning {
 public:
  Finetuning(const Options& options, const megatron::Translation& translation, const TaskOptions& task, Job& job,
             RunConfigReader& reader)
      : options_(options), translation_(translation), task_(task), job_(job), reader_(reader) {
    collectively(*job_.world, [&] {
      if (job_.is_root()) check_files();
    });
    open_model(task_.pretrained);
    read_data();
    config_ =
        reader_.settle(job_.grid.data_size(), {model_, sequence_length_, data_.train.samples->labels(), task_.epochs});
    check_training_type(*job_.backend, config_.precision.dtype, config_.precision.fp8);
    if (!config_.run.no_selftest) test_kernels(job_, config_.precision.dtype, config_.device, config_.precision.fp8);
  }

  int run() {
    std::vector<train::BestScores> all(static_cast<std::size_t>(task_.seeds));
    std::vector<double> results;
    for (int i = 0; i < task_.seeds; ++i) {
      const std::optional<double> score =
          run_seed(config_.seed + static_cast<std::uint64_t>(i), all[static_cast<std::size_t>(i)]);
      if (!score) return static_cast<int>(ExitCode::stopped_early);
      results.push_back(*score);
      job_.began = std::time(nullptr);  // the next seed's
    }
    if (task_.seeds > 1 && !config_.run.dry_run) report_seeds(results, all);
    return static_cast<int>(ExitCode::success);
  }

 private:
  /// Fails before hours of training if a file cannot be written, or is one that is read.
  void check_files() const {
    std::vector<std::string> inputs = reader_.inputs(), outputs;
    for (const auto* paths : {&task_.train, &task_.valid, &task_.test}) {
      for (const std::string& path : *paths)
        std::ranges::move(task_files(task_.task, path), std::back_inserter(inputs));
    }
    const RunConfig& parsed = reader_.parsed();
    for (int i = 0; i < task_.seeds; ++i) {
      const std::string suffix = suffix_of_seed(parsed.seed + static_cast<std::uint64_t>(i));
      std::ranges::move(parsed.run.outputs(suffix), std::back_inserter(outputs));
      if (suffix.empty()) continue;
      for (const std::string& file : {task_.predictions_file, task_.n_best_file}) {
        if (!file.empty()) outputs.push_back(file + suffix);
      }
    }
    for (const std::string& file : {task_.predictions_file, task_.n_best_file}) {
      outputs.push_back(file);
      if (!file.empty()) io::check_writable(file);
    }
    check_outputs(outputs, inputs);
  }

  /// Opens the checkpoint of the pretrained model, or of the run to resume. Reads its configuration and tokenizer.
  void open_model(const std::string& pretrained) {
    const CheckpointOptions& checkpoint = reader_.parsed().checkpoint;
    const std::string load = folder_of_seed(checkpoint.load, task_, reader_.parsed().seed);
    TRIREME_CHECK(!pretrained.empty() || !load.empty(), ConfigError,
                  "fine-tuning starts from a model: give --pretrained-checkpoint, or --load to resume");
    TRIREME_CHECK(!pretrained.empty() || task_.seeds == 1 || io::is_there(load), CheckpointError,
                  "there is no {}: with --seeds, --load names the folder of their checkpoints, and "
                  "--pretrained-checkpoint the model to start from",
                  load);
    OpenCheckpoint base = pretrained.empty() ? open_checkpoint(*job_.world, load, {.step = checkpoint.step})
                                             : open_checkpoint(*job_.world, pretrained,
                                                               {.step = {}, .kept_bytes = job_.bytes_for_files()});
    const Attributes& attributes = base.description.attributes;
    model_ = model::config_from(attributes);
    const bool is_pretrained = model_.predicts_tokens();
    const bool has_task = attributes.contains("data.task");
    const std::string measuring = is_pretrained ? "" : measuring_command(attributes, model_, pretrained);
    TRIREME_CHECK(
        is_pretrained || pretrained.empty(), CheckpointError,
        "--pretrained-checkpoint {0} holds a model that has a head, {1}, and no output layer to start from. Try the "
        "pretrained model that it was made of{2}{3}",
        pretrained,
        has_task ? fmt::format("fine-tuned for {}", attributes.get<std::string>("data.task"))
                 : "imported from " + attributes.get<std::string>("import.class"),
        measuring.empty() ? "" : ". Or measure this one: " + measuring,
        has_task ? fmt::format(". Or continue its run with --load {0} --save {0}", pretrained) : "");
    translation_.check_model(model_);
    const bool is_bert = model_.is_bert();
    const std::string& from = pretrained.empty() ? load : pretrained;
    TRIREME_CHECK(!is_pretrained || checkpoint.save.empty() || !checkpoint.saves_to(from), ConfigError,
                  "--save {} is the folder of the pretrained model, which this run would replace: name another",
                  checkpoint.save);
    TRIREME_CHECK(!model_.adapters.any(), CheckpointError,
                  "the model in {} has adapters, which one of a task cannot have: export it, which adds them to the "
                  "weights, import that, and fine-tune the result",
                  from);
    task_.set_output(model_);
    const FieldOptions& fields = reader_.parsed().model.fields;
    fields.apply(model_);
    Problems problems;
    fields.check(model_, problems);
    problems.report();
    tokenizer_name_ = attributes.get<std::string>("tokenizer");
    tokenizer_payload_ = tokenizer_payload(base.description);
    check_tokenizer(*job_.world, task_.tokenizer, base.reader->description(), tokenizer_name_, tokenizer_payload_);
    collectively(*job_.world, [&] { tokenizer_ = make_task_tokenizer(tokenizer_name_, tokenizer_payload_, is_bert); });
    const std::int32_t greatest = std::max({tokenizer_.tokens.cls, tokenizer_.tokens.sep, tokenizer_.tokens.pad});
    TRIREME_CHECK(
        greatest < model_.vocabulary, CheckpointError,
        "the model in {} has {} tokens, and tasks need token {} of its tokenizer: train a model with all of them", from,
        model_.vocabulary, greatest);
    if (is_pretrained) pretrained_ = std::make_shared<OpenCheckpoint>(std::move(base));
    continues_ = !is_pretrained;
  }

  void read_data() {
    sequence_length_ = reader_.parsed().batch.sequence_length.value_or(model_.max_positions);
    model::check_sequence_length(model_, sequence_length_);
    const auto read = [&](const std::vector<std::string>& paths, SplitUse use) {
      return read_task(*job_.world, task_, paths, tokenizer_, sequence_length_, use);
    };
    data_.train = read(task_.train, SplitUse::training);
    data_.valid = read(task_.valid, SplitUse::validation);
    if (!task_.test.empty()) data_.test = read(task_.test, SplitUse::test);
    log::info("{}: {} examples to train, {} to validate, {} to test; the best epoch is that of the highest {}",
              task_.task.name, data_.train.samples->labels(), data_.valid.samples->labels(),
              data_.test.samples ? data_.test.samples->labels() : 0, score_text(task_.task.metrics()));
  }

  TrainPlan make_plan(const RunConfig& config) const {
    TrainPlan plan;
    plan.store = open_store(*job_.world, config);
    plan.model = model_;
    plan.blobs["tokenizer"] = tokenizer_payload_;
    plan.iterations = *config.batch.train_iterations;
    plan.attributes = attributes_of(model_);
    plan.options = config.train_options();
    plan.attributes.merge(attributes_of(plan.options));
    put_dtype(plan.attributes, config.precision.dtype);
    plan.attributes.put("tokenizer", tokenizer_name_);
    plan.attributes.put("data.task", task_.task.name);
    if (const data::GlueTask* glue = task_.task.glue(); glue != nullptr && !glue->classes.empty()) {
      plan.attributes.put(class_names_attribute, fmt::format("{}", fmt::join(glue_names(*glue), "\n")));
    }
    plan.attributes.put("data.train", data_.train.digest);
    plan.attributes.put("data.tokenizer", tokenizer_.tokenizer->digest());
    plan.attributes.put("data.sequence_length", sequence_length_);
    plan.attributes.put("data.seed", static_cast<std::int64_t>(config.seed));
    const std::string& load = config.checkpoint.load;
    const Attributes before = plan.attributes;
    if (task_.task.is_squad()) {
      plan.attributes.put("data.doc_stride", task_.task.doc_stride);
      plan.attributes.put("data.max_query_length", task_.task.max_query_length);
    }
    open_start(job_, config, !load.empty() && (continues_ || load != pretrained_load()), plan);
    if (plan.start.reader) {
      // Earlier versions of the program did not store them.
      if (!plan.start.description.attributes.contains("data.doc_stride")) plan.attributes = before;
      CheckpointOptions options = config.checkpoint;
      options.override_schedule = options.override_schedule || task_.epochs == 0;  // no update follows it
      check_batch(plan.start.description.attributes, plan.attributes);
      settle_start(plan.start.description.attributes, options, plan);
    } else {
      TRIREME_CHECK(pretrained_, CheckpointError, "{} has no checkpoint to resume from", config.checkpoint.load);
      plan.pretrained = pretrained_;
    }
    return plan;
  }
  /// Throws CheckpointError if the run to resume has other batches: its epochs would end at other iterations.
  void check_batch(const Attributes& stored, const Attributes& run) const {
    constexpr const char* name = "training.global-batch-size";
    if (task_.epochs == 0 || !stored.contains(name)) return;
    const std::int64_t samples = model_.samples_per_label();
    const std::int64_t there = stored.get<std::int64_t>(name) / samples, here = run.get<std::int64_t>(name) / samples;
    TRIREME_CHECK(there == here, CheckpointError,
                  "the checkpoint's run has batches of {} examples, this one of {}, so that epochs differ. Give "
                  "--global-batch-size {} to resume it",
                  there, here, there);
  }
  /// Returns the folder of --load if it has the pretrained model.
  std::string pretrained_load() const {
    return options_.given("pretrained-checkpoint") ? "" : reader_.parsed().checkpoint.load;
  }

  /// Returns the best score of a seed, or none if it was stopped early. Sets `best` to the scores of its best epoch.
  std::optional<double> run_seed(std::uint64_t seed, train::BestScores& best) {
    RunConfig config = config_;
    config.seed = seed;
    if (double& minutes = config.run.schedule.exit_duration_minutes; minutes > 0) {
      minutes = std::max(minutes - timer_.elapsed_s() / 60, 1e-9);  // all seeds have this time together
    }
    config.checkpoint.save = folder_of_seed(config_.checkpoint.save, task_, seed);
    config.checkpoint.load = folder_of_seed(config_.checkpoint.load, task_, seed);
    config.checkpoint.local_folder = folder_of_seed(config_.checkpoint.local_folder, task_, seed);
    for (std::string* file : {&config.run.metrics_file, &config.run.trace_file, &config.report.tensorboard.folder}) {
      if (!file->empty()) *file += suffix_of_seed(seed);
    }
    config.record("seed", std::to_string(seed));
    config.record("save", config.checkpoint.save);
    config.record("load", config.checkpoint.load);
    config.record("local-checkpoint-dir", config.checkpoint.local_folder);
    config.record("metrics-file", config.run.metrics_file);
    config.record("trace-file", config.run.trace_file);
    config.record("tensorboard-dir", config.report.tensorboard.folder);
    TrainPlan plan = make_plan(config);
    log_configuration(options_, job_, config, plan);
    if (config.run.dry_run) {
      log::info("dry run: everything is in order; {} would run",
                counted(std::max<std::int64_t>(plan.iterations - plan.done.iteration, 0), "iteration"));
      return 0;
    }
    lock_seeds();
    const std::int64_t per_epoch = config.run.schedule.eval_interval;
    train::EpochScoring scoring(task_.task, data_, per_epoch, plan.start.description.blobs, plan.blobs);
    TrainSession session(job_, config, plan);
    session.restore();
    if (task_.epochs == 0) {
      best = {score_samples(session.model(), *data_.valid.samples), {}};
      train::check_finite(best.valid, "validation");
      if (data_.test.samples) {
        best.test = score_samples(session.model(), *data_.test.samples);
        train::check_finite(best.test, "test");
      }
      write_predictions_of(best, suffix_of_seed(seed));
      print_result(session.progress(), seed, 0, session.progress().iteration, best);
      return score_of(session.progress(), best);
    }
    bool wrote = false;
    data::SampleSplits data;
    data.train = std::make_unique<data::EpochSamples>(
        *data_.train.samples, seed, task_.epochs,
        per_epoch * config.batch.batches(job_.grid.data_size()).max_size() / model_.samples_per_label());
    if (session.has_work(data)) {
      const train::RunEnd end = session.run(data, [&] {
        if (scoring.evaluate(session.model(), session.trainer())) {
          write_predictions_of(scoring.best(), suffix_of_seed(seed));
          wrote = true;
        }
      });
      if (end == train::RunEnd::stopped_early) return std::nullopt;
    }
    best = scoring.best();
    if (!wrote) write_predictions_of(best, suffix_of_seed(seed));  // the best epoch was one of an earlier attempt
    const train::Progress& progress = session.progress();
    print_result(progress, seed, progress.best_iteration / per_epoch, progress.best_iteration, best);
    return score_of(progress, best);
  }
  /// Returns the score of the best epoch, measured again unless its scores are those of other data.
  double score_of(const train::Progress& progress, const train::BestScores& best) const {
    return best.valid.scores.empty() ? progress.best_score : measure(task_.task, data_.valid, best.valid).all.score;
  }

  /// Prints the result of a seed as a line of JSON.
  void print_result(const train::Progress& progress, std::uint64_t seed, std::int64_t epoch, std::int64_t iteration,
                    const train::BestScores& best) const {
    print_line(job_, fmt::format("{{\"task\": \"{}\", \"seed\": {}, \"epoch\": {}, \"iteration\": {}, {}{}}}",
                                 task_.task.name, seed, epoch, iteration, best_json(progress, best.valid, data_.valid),
                                 data_.test.samples && !best.test.scores.empty()
                                     ? fmt::format(", \"test\": {{{}}}", best_json(progress, best.test, data_.test))
                                     : ""));
  }

  /// Locks the folder of all seeds, so that no other job trains a seed of this one.
  void lock_seeds() {
    if (task_.seeds == 1 || config_.checkpoint.save.empty()) return;
    collectively(*job_.world, [&] {
      if (!job_.is_root() || seeds_lock_) return;
      io::make_folders(config_.checkpoint.save);
      seeds_lock_.emplace(config_.checkpoint.save + "/.lock", config_.checkpoint.save);
    });
  }

  /// Returns the figures of the best epoch; only its score if an earlier run measured it on other data.
  std::string best_json(const train::Progress& progress, const train::TaskScores& scores,
                        const train::TaskSplit& split) const {
    if (scores.scores.empty()) {
      return score_json(progress.best_score);
    }
    return json_of(measure(task_.task, split, scores));
  }

  /// Returns a score as a member of a JSON object: SQuAD's in percent.
  std::string score_json(double score, std::string_view prefix = "") const {
    return fmt::format("\"{}{}\": {:.17g}", prefix, score_key(task_.task.metrics()),
                       task_.task.is_squad() ? 100 * score : score);
  }

  /// Returns the suffix of a seed's file names.
  std::string suffix_of_seed(std::uint64_t seed) const { return task_.seeds == 1 ? "" : fmt::format(".seed-{}", seed); }

  /// Writes the requested predictions: of the test data, or else the validation data.
  void write_predictions_of(const train::BestScores& best, const std::string& suffix) const {
    if (task_.predictions_file.empty() && task_.n_best_file.empty()) return;
    const train::TaskSplit& split = data_.test.samples ? data_.test : data_.valid;
    const train::TaskScores& scores = data_.test.samples ? best.test : best.valid;
    if (scores.scores.empty()) {
      log::warn("no predictions are written: an earlier attempt measured the best epoch on other data");
      return;
    }
    collectively(*job_.world, [&] {
      if (job_.is_root()) write_predictions(task_, split, measure(task_.task, split, scores), suffix);
    });
  }

  /// Prints the median over the seeds and the result of their averaged probabilities or values. Writes the predictions
  /// of the latter.
  void report_seeds(const std::vector<double>& results, const std::vector<train::BestScores>& all) const {
    std::string line = fmt::format("{{\"task\": \"{}\", \"seeds\": {}, {}", task_.task.name, task_.seeds,
                                   score_json(train::median_of(results), "median_"));
    train::BestScores mean;
    for (const auto& [name, scores, split] : {std::tuple{"ensemble", &train::BestScores::valid, &data_.valid},
                                              std::tuple{"ensemble_test", &train::BestScores::test, &data_.test}}) {
      if (!split->samples) continue;
      const auto lacking =
          std::ranges::count_if(all, [&](const train::BestScores& seed) { return (seed.*scores).scores.empty(); });
      if (lacking > 0) {
        log::warn("no {}: an earlier run measured {} of the seeds, without these data", name, lacking);
        continue;
      }
      std::vector<train::TaskScores> models;
      for (const train::BestScores& seed : all) models.push_back(seed.*scores);
      mean.*scores = mean_of(task_.task, std::move(models));
      line += fmt::format(", \"{}\": {{{}}}", name, json_of(measure(task_.task, *split, mean.*scores)));
    }
    if (!(data_.test.samples ? mean.test : mean.valid).scores.empty()) write_predictions_of(mean, "");
    print_line(job_, line + "}");
  }

  const Options& options_;
  const megatron::Translation& translation_;
  const TaskOptions& task_;
  Job& job_;
  RunConfigReader& reader_;
  RunConfig config_;
  model::ModelConfig model_;
  std::shared_ptr<const OpenCheckpoint> pretrained_;  // null if a run is resumed
  bool continues_ = false;                            // --load holds a run of the task
  std::string tokenizer_name_, tokenizer_payload_;
  TaskTokenizer tokenizer_;
  std::int64_t sequence_length_ = 0;
  train::TaskData data_;
  std::optional<io::FolderLock> seeds_lock_;
  const Timer timer_;
};

}  // namespace

int finetune_command(const CommandLine& line) {
  Options options(
      line.command(),
      "Trains a pretrained BERT or GPT on a task, measures each epoch on validation data and prints the best as a line "
      "of JSON.");
  TaskOptions task;
  task.declare(options);
  RunConfigReader reader(options, RunKind::task);
  const std::optional<megatron::Translation> translation = megatron::read(line, options);
  if (!translation) return 0;
  task.check(options);
  std::signal(SIGPIPE, SIG_IGN);  // a run continues when the reader of its log is gone

  Job job(line.environment(), options, reader.parsed().parallel.grid, reader.parsed().device);
  translation->log();
  return Finetuning(options, *translation, task, job, reader).run();
}

}  // namespace trireme::app
