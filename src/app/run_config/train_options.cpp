#include "src/app/run_config/train_options.hpp"

#include <fmt/ranges.h>

#include <charconv>

namespace trireme::app {
namespace {

/// Few enough that a share of them, computed in floating point, fits into 64 bits again.
constexpr Range update_count(double least) { return {least, 1e18}; }

train::BatchRampUp ramp_up_of(const std::vector<std::string>& texts) {
  std::int64_t values[3] = {};
  bool valid = texts.size() == 3;
  for (std::size_t i = 0; valid && i < 3; ++i) {
    const char* end = texts[i].data() + texts[i].size();
    const auto [stop, error] = std::from_chars(texts[i].data(), end, values[i]);
    valid = error == std::errc() && stop == end;
  }
  TRIREME_CHECK(valid, ConfigError, "--rampup-batch-size {}: three numbers are needed: first batch, increment, samples",
                fmt::join(texts, " "));
  return {.start = values[0], .increment = values[1], .samples = values[2]};
}

}  // namespace

void TrainCommandOptions::declare(Options& options) {
  model.declare(options);
  grid.declare(options);

  options.section("Training");
  options.add("seq-length", &sequence_length, "N", "Tokens of a sample.", countable());
  options.add("micro-batch-size", &micro_batch_size, "N", "Samples that one rank works on at a time.", countable());
  options.add("global-batch-size", &global_batch_size, "N",
              "Samples of an update; default one micro-batch a data rank.", countable());
  options.add("rampup-batch-size", &ramp_up_text, "START INCREMENT SAMPLES",
              "With --train-samples: begin with batches of START and add INCREMENT at equal distances until the global "
              "batch is reached at sample number SAMPLES.");
  options.add_flag("decrease-batch-size-if-needed", &decrease_batch_size,
                   "Round batches down to a multiple of micro-batch size x data ranks, instead of an error.");
  options.add_choice("loss-average", &loss_average,
                     {{"tokens", train::LossAverage::tokens}, {"micro-batch", train::LossAverage::micro_batch}},
                     "The loss is the mean over all tokens of the global batch that count, or, as in Megatron-LM, the "
                     "mean of the micro-batches' means.");
  options.add(
      "train-iters", &train_iterations, "N",
      "Iterations of the whole run, earlier lives included; 0 with --save writes the initial weights as step 0.",
      update_count(0));
  options.add("train-samples", &train_samples, "N",
              "Samples of the whole run, instead of --train-iters; an incomplete last batch is left out.",
              update_count(1));
  options.add("seed", &seed, "N", "Seed of initial weights, dropout and sample order.", between(0, 4294967295.0));
  precision.declare(options);
  execution.declare(options);
  options.add_choice("init-method", &initialisation.method,
                     {{"normal", model::InitMethod::normal}, {"hashed-uniform", model::InitMethod::hashed_uniform}},
                     "Initial weights: normal deviates of the seed, or a formula of name and index alone.");
  options.add("init-method-std", &initialisation.std, "X", "Standard deviation of normal initial weights.",
              at_least(0));
  options.add("init-scale", &initialisation.scale, "X", "Multiplies the initial matrices of the layers.", at_least(0));

  sharding.declare(options);

  options.section("Optimizer");
  options.add_choice("optimizer", &optimizer.kind,
                     {{"adam", optim::OptimizerKind::adam}, {"sgd", optim::OptimizerKind::sgd}},
                     "adam: AdamW, with decoupled weight decay. sgd: SGD with momentum, with weight decay added to the "
                     "gradient.");
  options.add("lr", &lr.maximum, "X", "Peak learning rate.", at_least(0));
  options.add("min-lr", &lr.minimum, "X", "Learning rate at the end of the decay.", at_least(0));
  options.add_choice("lr-decay-style", &lr.style,
                     {{"linear", optim::LrDecayStyle::linear},
                      {"cosine", optim::LrDecayStyle::cosine},
                      {"constant", optim::LrDecayStyle::constant},
                      {"inverse-square-root", optim::LrDecayStyle::inverse_square_root}},
                     "Decay of the learning rate after the warm-up.");
  options.add("lr-warmup-iters", &lr_warmup_iterations, "N", "Updates of linear warm-up.", update_count(0));
  options.add("lr-warmup-samples", &lr_warmup_samples, "N", "With --train-samples: samples of linear warm-up.",
              update_count(0));
  options.add("lr-warmup-fraction", &lr_warmup_fraction, "X", "Warm-up as a share of the decay.", between(0, 1));
  options.add("lr-decay-iters", &lr_decay_iterations, "N", "Update at which the decay ends; default --train-iters.",
              update_count(1));
  options.add("lr-decay-samples", &lr_decay_samples, "N",
              "With --train-samples: samples after which the decay ends; default all.", update_count(1));
  options.add("weight-decay", &optimizer.weight_decay, "X", "Weight decay of matrices and embeddings.", at_least(0));
  options.add("adam-beta1", &optimizer.adamw.beta1, "X", "Decay of the first moment.", between(0, 1));
  options.add("adam-beta2", &optimizer.adamw.beta2, "X", "Decay of the second moment.", between(0, 1));
  options.add("adam-eps", &optimizer.adamw.epsilon, "X", "Added to the root of the second moment.", at_least(0));
  options.add("sgd-momentum", &optimizer.sgd.momentum, "X", "Momentum of SGD.", between(0, 1));
  options.add("clip-grad", &clip_grad, "X", "Largest gradient norm; 0: no clipping.", at_least(0));
  options.add("loss-scale", &constant_loss_scale, "X", "Constant loss scale instead of the dynamic one of fp16.",
              at_least(0));
  options.add("initial-loss-scale", &loss_scale.initial_scale, "X", "First dynamic loss scale (default 2^32).",
              at_least(1));
  options.add("min-loss-scale", &loss_scale.minimum_scale, "X", "Least dynamic loss scale.", at_least(0));
  options.add("loss-scale-window", &loss_scale.growth_window, "N", "Good updates before the scale doubles.",
              at_least(1));
  options.add("hysteresis", &loss_scale.hysteresis, "N", "Overflows before the scale is halved.", at_least(1));
  options.add("max-skipped", &max_skipped, "N",
              "Iterations in a row without finite gradients that end the run; with fp16's dynamic loss scale only "
              "those at --min-loss-scale count.",
              at_least(1));

  data.declare(options);

  options.section("Run");
  options.add("log-interval", &run.log_interval, "N", "Iterations between lines of the log.", at_least(1));
  options.add("eval-interval", &run.eval_interval, "N", "Iterations between evaluations.", at_least(1));
  options.add("eval-iters", &run.eval_iterations, "N", "Global batches of an evaluation; 0: none.", at_least(0));
  checkpoint.declare(options);
  options.add("exit-interval", &run.exit_interval, "N",
              "Save and stop after an iteration divisible by N: exit code 75, without --save 0.", at_least(1));
  options.add("exit-duration-in-mins", &run.exit_duration_minutes, "X",
              "Save and stop after this time: exit code 75, without --save 0.", at_least(0));
  options.add("metrics-file", &metrics_file, "FILE",
              "Append one JSON object an iteration. FLOPs, there and in the log, are the model's: attention in full, "
              "causal or not, without recomputation.");
  options.add("trace-file", &trace_file, "FILE",
              "At the end write the timeline of every rank, for Perfetto or chrome://tracing. For runs of few "
              "iterations: everything is kept in memory until then.");
  options.add_flag("dry-run", &dry_run, "Check everything, print the run's configuration and memory, and exit.");
  for (const char* name : {"seq-length", "lr"}) options.require(name);
}

void TrainCommandOptions::settle(const Options& options, int data_ranks) {
  Problems problems;
  const auto expect = [&](bool holds, const std::string& problem) { problems.expect(holds, problem); };
  precision.settle(options, problems);
  execution.settle(options, grid, problems);

  if (!global_batch_size) global_batch_size = micro_batch_size * data_ranks;
  expect(train_iterations.has_value() != train_samples.has_value(),
         "either --train-iters or --train-samples must be given");
  expect(ramp_up_text.empty() || train_samples, "--rampup-batch-size needs --train-samples instead of --train-iters");
  problems.attempt([&] {
    if (!ramp_up_text.empty()) ramp_up = ramp_up_of(ramp_up_text);
    batches(data_ranks);
  });

  sharding.settle(precision.dtype, problems);
  execution.check_graphs(grid.device, problems);
  problems.attempt([&] { train::validate(layout()); });

  for (const char* name : {"adam-beta1", "adam-beta2", "adam-eps"}) {
    expect(optimizer.kind == optim::OptimizerKind::adam || !options.given(name),
           fmt::format("--{} needs --optimizer adam", name));
  }
  expect(optimizer.kind == optim::OptimizerKind::sgd || !options.given("sgd-momentum"),
         "--sgd-momentum needs --optimizer sgd");
  settle_learning_rate(options, expect);

  loss_scale.dynamic = precision.dtype == DType::fp16 && !constant_loss_scale;
  if (constant_loss_scale) loss_scale.initial_scale = *constant_loss_scale;
  if (!loss_scale.dynamic) loss_scale.minimum_scale = loss_scale.initial_scale = constant_loss_scale.value_or(1);

  if (data.sampling == data::Sampling::sequential && !options.given("eval-iters")) run.eval_iterations = 0;
  problems.attempt([&] { data.corpora(); });
  checkpoint.check(options, problems);
  run.save_interval = checkpoint.save_interval;
  problems.report();
  if (train_samples || train_iterations > 0) lr.validate();
}

void TrainCommandOptions::settle_learning_rate(const Options& options,
                                               const std::function<void(bool, const std::string&)>& expect) {
  lr.by_samples = train_samples.has_value();
  const char* unit = lr.by_samples ? "samples" : "iters";
  for (const char* name : {"lr-warmup-", "lr-decay-"}) {
    const char* other = lr.by_samples ? "iters" : "samples";
    expect(!options.given(std::string(name) + other),
           fmt::format("--{}{} goes with --train-{}; with --train-{} say it by --{}{}", name, other, other, unit, name,
                       unit));
  }
  lr.decay = lr.by_samples ? lr_decay_samples.value_or(*train_samples)
                           : lr_decay_iterations.value_or(train_iterations.value_or(0));
  const std::optional<std::int64_t>& warmup = lr.by_samples ? lr_warmup_samples : lr_warmup_iterations;
  expect(!lr_warmup_fraction || !warmup,
         fmt::format("--lr-warmup-fraction and --lr-warmup-{} exclude each other", unit));
  lr.warmup = warmup.value_or(0);
  if (lr_warmup_fraction) {
    lr.warmup = static_cast<std::int64_t>(*lr_warmup_fraction * static_cast<double>(lr.decay));
  }
}

train::ExecutionConfig TrainCommandOptions::layout() const {
  return {.dtype = precision.dtype,
          .sequence_length = sequence_length,
          .micro_batch_size = micro_batch_size,
          .vocabulary_multiple = grid.vocabulary_multiple,
          .padded_vocabulary_size = grid.padded_vocabulary,
          .recomputation = execution.recomputation,
          .cuda_graphs = execution.cuda_graphs,
          .parallel = {.sequence_parallel = execution.sequence_parallel,
                       .async_tensor_all_reduce = !execution.no_async_tensor_all_reduce,
                       .pipeline = grid.pipeline_split(),
                       .schedule = execution.schedule,
                       .overlap_p2p = execution.overlap_p2p,
                       .scatter_gather = !execution.no_scatter_gather,
                       .data_parallel = data_parallel()}};
}

parallel::DataParallelOptions TrainCommandOptions::data_parallel() const {
  return sharding.data_parallel(precision.dtype);
}

train::TrainOptions TrainCommandOptions::training() const {
  return {.global_batch_size = *global_batch_size,
          .ramp_up = ramp_up,
          .decrease_batch_size = decrease_batch_size,
          .loss_average = loss_average,
          .seed = seed,
          .lr_schedule = lr,
          .optimizer = optimizer,
          .clip_grad = clip_grad,
          .loss_scale = loss_scale,
          .max_skipped = max_skipped};
}

train::BatchSchedule TrainCommandOptions::batches(int data_ranks) const {
  return {*global_batch_size, ramp_up, decrease_batch_size, micro_batch_size, data_ranks};
}

std::int64_t TrainCommandOptions::iterations(const train::Progress& done, int data_ranks) const {
  if (train_iterations) return *train_iterations;
  return done.iteration + batches(data_ranks).iterations(done.consumed_samples, *train_samples);
}

data::RunLength TrainCommandOptions::run_length(std::int64_t iterations) const {
  return {.train_iters = iterations,
          .train_samples = train_samples.value_or(0),
          .global_batch_size = *global_batch_size,
          .eval_interval = run.eval_interval,
          .eval_iters = run.eval_iterations};
}

}  // namespace trireme::app
