#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>

#include "io/posix/folder.hpp"
#include "io/posix/folder_lock.hpp"
#include "src/app/commands/commands.hpp"
#include "src/app/commands/finetune/best_scores.hpp"
#include "src/app/commands/finetune/task_result.hpp"
#include "src/app/commands/train/configuration_log.hpp"
#include "src/app/commands/train/train_session.hpp"
#include "src/app/job/kernel_test.hpp"
#include "src/app/megatron/translation.hpp"
#include "src/base/log.hpp"
#include "src/base/shortened.hpp"

namespace trireme::app {
namespace {

void print_line(const Job& job, const std::string& line) {
  if (!job.is_root()) return;
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

/// Returns the folder of checkpoints of one seed among several.
std::string folder_of_seed(const std::string& folder, const TaskOptions& task, std::uint64_t seed) {
  return folder.empty() || task.seeds == 1 ? folder : fmt::format("{}/seed-{}", folder, seed);
}

/// Fine-tuning of a model: the data of its task, and a run for each seed.
class Finetuning {
 public:
  Finetuning(const Options& options, const megatron::Translation& translation, const TaskOptions& task, Job& job,
             RunConfigReader& reader)
      : options_(options), translation_(translation), task_(task), job_(job), reader_(reader) {
    collectively(*job_.world, [&] {
      for (const std::string& file : {task_.predictions_file, task_.n_best_file}) {
        if (job_.is_root() && !file.empty()) io::check_writable(file);  // before hours of training
      }
    });
    open_model(task_.pretrained);
    read_data();
    config_ = reader_.settle(job_.grid.data_size(), {model_, sequence_length_, train_.samples->labels(), task_.epochs});
    check_training_type(*job_.backend, config_.precision.dtype);
    test_kernels(job_, config_);
  }

  int run() {
    std::vector<BestScores> all(static_cast<std::size_t>(task_.seeds));
    std::vector<double> results;
    for (int i = 0; i < task_.seeds; ++i) {
      const std::optional<double> score =
          run_seed(config_.seed + static_cast<std::uint64_t>(i), all[static_cast<std::size_t>(i)]);
      if (!score) return static_cast<int>(ExitCode::stopped_early);
      results.push_back(*score);
    }
    if (task_.seeds > 1 && !config_.run.dry_run) report_seeds(results, all);
    return static_cast<int>(ExitCode::success);
  }

 private:
  /// Finds the model: that of the pretrained checkpoint, or of the run to continue with.
  void open_model(const std::string& pretrained) {
    const CheckpointOptions& checkpoint = reader_.parsed().checkpoint;
    const std::string load = folder_of_seed(checkpoint.load, task_, reader_.parsed().seed);
    TRIREME_CHECK(!pretrained.empty() || !load.empty(), ConfigError,
                  "fine-tuning begins with a model: give --pretrained-checkpoint, or --load to go on");
    OpenCheckpoint base;
    if (pretrained.empty()) {
      base = open_checkpoint(*job_.world, load, {.step = checkpoint.step});
    } else {
      base = open_checkpoint(*job_.world, pretrained);
    }
    const Attributes& attributes = base.description.attributes;
    model_ = model::config_from(attributes);
    const bool is_pretrained = model_.predicts_tokens();
    TRIREME_CHECK(
        is_pretrained || pretrained.empty(), CheckpointError,
        "--pretrained-checkpoint {} holds a model of the task {}. Try its pretrained model, or --load to go on",
        pretrained, attributes.contains("data.task") ? attributes.get<std::string>("data.task") : "?");
    translation_.check_model(model_);
    const bool is_bert = model_.is_bert();
    task_.set_output(model_);
    reader_.parsed().model.fields.apply(model_);
    tokenizer_name_ = attributes.get<std::string>("tokenizer");
    const auto payload = base.description.blobs.find("tokenizer");
    TRIREME_CHECK(payload != base.description.blobs.end(), CheckpointError, "the checkpoint has no tokenizer");
    tokenizer_payload_ = payload->second;
    hold_tokenizer(*job_.world, task_.tokenizer, base.reader->description(), tokenizer_name_, tokenizer_payload_);
    collectively(*job_.world, [&] { tokenizer_ = make_task_tokenizer(tokenizer_name_, tokenizer_payload_, is_bert); });
    if (is_pretrained) pretrained_ = std::make_shared<OpenCheckpoint>(std::move(base));
    continues_ = !is_pretrained;
  }

  void read_data() {
    sequence_length_ = reader_.parsed().batch.sequence_length.value_or(model_.max_positions);
    model::check_sequence_length(model_, sequence_length_);
    const auto read = [&](const std::vector<std::string>& paths, SplitUse use) {
      return read_task(*job_.world, task_, paths, tokenizer_, sequence_length_, use);
    };
    train_ = read(task_.train, SplitUse::training);
    valid_ = read(task_.valid, SplitUse::validation);
    if (!task_.test.empty()) test_ = read(task_.test, SplitUse::test);
    log::info("{}: {} examples to train, {} to validate, {} to test", task_.name(), train_.samples->labels(),
              valid_.samples->labels(), test_.samples ? test_.samples->labels() : 0);
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
    plan.attributes.put("data.task", task_.name());
    plan.attributes.put("data.train", train_.digest);
    plan.attributes.put("data.tokenizer", tokenizer_.tokenizer->digest());
    plan.attributes.put("data.sequence_length", sequence_length_);
    plan.attributes.put("data.seed", static_cast<std::int64_t>(config.seed));
    if (!config.checkpoint.load.empty() && (continues_ || config.checkpoint.load != pretrained_load())) {
      plan.start = open_checkpoint(*job_.world, config.checkpoint.load, config.checkpoint.source());
    }
    if (plan.start.reader) {
      settle_start(plan.start.description.attributes, config.checkpoint, plan);
    } else {
      TRIREME_CHECK(pretrained_, CheckpointError, "{} has no checkpoint to go on with", config.checkpoint.load);
      plan.pretrained = pretrained_;
    }
    return plan;
  }
  /// Returns the folder that was given by --load and holds the pretrained model.
  std::string pretrained_load() const {
    return options_.given("pretrained-checkpoint") ? "" : reader_.parsed().checkpoint.load;
  }

  /// Returns the best score of a seed, or none if it was stopped early.
  std::optional<double> run_seed(std::uint64_t seed, BestScores& best) {
    RunConfig config = config_;
    config.seed = seed;
    config.checkpoint.save = folder_of_seed(config_.checkpoint.save, task_, seed);
    config.checkpoint.load = folder_of_seed(config_.checkpoint.load, task_, seed);
    for (std::string* file : {&config.run.metrics_file, &config.run.trace_file, &config.report.tensorboard.folder}) {
      if (!file->empty()) *file += suffix_of_seed(seed);
    }
    TrainPlan plan = make_plan(config);
    log_configuration(options_, job_, config, plan);
    if (config.run.dry_run) {
      log::info("dry run: everything is in order; {} iterations would run",
                std::max<std::int64_t>(plan.iterations - plan.done.iteration, 0));
      return 0;
    }
    lock_seeds();
    best = BestScores::from(plan.start.description.blobs, task_, valid_, test_);
    if (!best.valid.scores.empty()) best.put(task_, valid_, test_, plan.blobs);
    TrainSession session(job_, config, plan);
    session.restore();
    data::SampleSplits data;
    const std::int64_t per_epoch = config.run.schedule.eval_interval;
    data.train = std::make_unique<data::EpochSamples>(
        *train_.samples, seed, task_.epochs,
        per_epoch * config.batch.batches(job_.grid.data_size()).max_size() / model_.samples_per_label());
    if (session.has_work(data)) {
      const train::RunEnd end = session.run(data, [&] { evaluate(session, seed, per_epoch, best, plan.blobs); });
      if (end == train::RunEnd::stopped_early) return std::nullopt;
    }
    const train::Progress& progress = session.progress();
    print_line(
        job_,
        fmt::format(
            "{{\"task\": \"{}\", \"seed\": {}, \"epoch\": {}, \"iteration\": {}, {}{}}}", task_.name(), seed,
            progress.best_iteration / per_epoch, progress.best_iteration, best_json(progress, best.valid, valid_, ""),
            test_.samples && !best.test.scores.empty() ? ", " + best_json(progress, best.test, test_, "test_") : ""));
    return progress.best_score;
  }

  /// Takes the folder of all seeds for this job: another one must not begin with a seed that is done here.
  void lock_seeds() {
    if (task_.seeds == 1 || config_.checkpoint.save.empty()) return;
    collectively(*job_.world, [&] {
      if (!job_.is_root() || seeds_lock_) return;
      io::make_folders(config_.checkpoint.save);
      seeds_lock_.emplace(config_.checkpoint.save + "/.lock", config_.checkpoint.save);
    });
  }

  /// Returns the figures of the best epoch. Where an earlier run measured it on other data, only its score is known.
  std::string best_json(const train::Progress& progress, const infer::TaskScores& scores, const TaskSplit& split,
                        const std::string& prefix) const {
    if (scores.scores.empty()) {
      return fmt::format("\"{}\": {:.17g}", split.squad ? "f1" : "accuracy",
                         split.squad ? 100 * progress.best_score : progress.best_score);
    }
    const std::string json = measure(task_, split, scores).json();
    if (prefix.empty()) return json;
    return fmt::format("\"test\": {{{}}}", json);
  }

  void evaluate(TrainSession& session, std::uint64_t seed, std::int64_t per_epoch, BestScores& best,
                std::map<std::string, std::string>& blobs) {
    infer::TaskScores scores = infer::score_samples(session.model(), *valid_.samples);
    const TaskResult result = measure(task_, valid_, scores);
    const std::int64_t iteration = session.progress().iteration;
    const bool is_best = session.trainer().note_score(result.score);
    log::info("validation after iteration {}, epoch {:.2f}: {}, loss {:.4f}{}", iteration,
              static_cast<double>(iteration) / static_cast<double>(per_epoch), result.text(), scores.loss,
              is_best ? ", the best" : "");
    if (!is_best) return;
    best.valid = std::move(scores);
    if (test_.samples) {
      best.test = infer::score_samples(session.model(), *test_.samples);
      log::info("test after iteration {}: {}{}", iteration, measure(task_, test_, best.test).text(),
                test_.has_labels ? fmt::format(", loss {:.4f}", best.test.loss) : "");
    }
    best.put(task_, valid_, test_, blobs);
    write_predictions_of(best, suffix_of_seed(seed));
  }

  /// Returns what stands behind the names of a seed's files.
  std::string suffix_of_seed(std::uint64_t seed) const { return task_.seeds == 1 ? "" : fmt::format(".seed-{}", seed); }

  /// Writes the predictions that are asked for: of the test data, or else the validation data.
  void write_predictions_of(const BestScores& best, const std::string& suffix) const {
    if (task_.predictions_file.empty() && task_.n_best_file.empty()) return;
    const TaskSplit& split = test_.samples ? test_ : valid_;
    const infer::TaskScores& scores = test_.samples ? best.test : best.valid;
    collectively(*job_.world, [&] {
      if (job_.is_root()) write_predictions(task_, split, measure(task_, split, scores), suffix);
    });
  }

  /// Prints the median over the seeds, and the result of their averaged probabilities; writes the predictions of these.
  void report_seeds(std::vector<double> results, const std::vector<BestScores>& all) const {
    std::ranges::sort(results);
    const std::size_t middle = results.size() / 2;
    const double median = results.size() % 2 == 1 ? results[middle] : (results[middle - 1] + results[middle]) / 2;
    std::string line = fmt::format("{{\"task\": \"{}\", \"seeds\": {}, \"median_{}\": {:.17g}", task_.name(),
                                   task_.seeds, valid_.squad ? "f1" : "accuracy", valid_.squad ? 100 * median : median);
    BestScores mean;
    for (const auto& [name, scores, split] : {std::tuple{"ensemble", &BestScores::valid, &valid_},
                                              std::tuple{"ensemble_test", &BestScores::test, &test_}}) {
      if (!split->samples) continue;
      const auto lacking =
          std::ranges::count_if(all, [&](const BestScores& seed) { return (seed.*scores).scores.empty(); });
      if (lacking > 0) {
        log::warn("no {}: an earlier run measured {} of the seeds, without these data", name, lacking);
        continue;
      }
      mean.*scores = mean_of(all, scores, split->squad != nullptr);
      line += fmt::format(", \"{}\": {{{}}}", name, measure(task_, *split, mean.*scores).json());
    }
    if (!(test_.samples ? mean.test : mean.valid).scores.empty()) write_predictions_of(mean, "");
    print_line(job_, line + "}");
  }

  const Options& options_;
  const megatron::Translation& translation_;
  const TaskOptions& task_;
  Job& job_;
  RunConfigReader& reader_;
  RunConfig config_;
  model::ModelConfig model_;
  std::shared_ptr<const OpenCheckpoint> pretrained_;  // null if the run only continues
  bool continues_ = false;                            // --load holds a run of the task
  std::string tokenizer_name_, tokenizer_payload_;
  TaskTokenizer tokenizer_;
  std::int64_t sequence_length_ = 0;
  TaskSplit train_, valid_, test_;
  std::optional<io::FolderLock> seeds_lock_;
};

}  // namespace

int finetune_command(const CommandLine& line) {
  Options options(
      line.command(),
      "Trains a pretrained BERT or GPT on a task, measures each epoch on validation data and prints the best "
      "as a line of JSON.");
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
