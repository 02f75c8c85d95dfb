#include "src/app/run_config/train_options.hpp"

#include <fmt/ranges.h>

#include <charconv>
#include <cmath>

#include "src/app/options/printable.hpp"

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
  options.add_choice("dtype", &dtype,
                     {{"fp64", DType::fp64}, {"fp32", DType::fp32}, {"bf16", DType::bf16}, {"fp16", DType::fp16}},
                     "Type of weights and activations; 16-bit types have fp32 master weights.");
  options.add_flag("bf16", &bf16, "The same as --dtype bf16.");
  options.add_flag("fp16", &fp16, "The same as --dtype fp16: with dynamic loss scaling.");
  declare_schedule(options, &schedule);
  options.add_flag(
      "overlap-p2p-communication", &overlap_p2p,
      "Post receives between pipeline stages two steps ahead, so that messages travel during computation.");
  options.add_flag(
      "no-scatter-gather-tensors-in-pipeline", &no_scatter_gather,
      "Each tensor rank sends whole activations to the next stage, not its part of them to be gathered there.");
  options.add_flag("sequence-parallel", &sequence_parallel,
                   "Divide the residual stream along the sequence over the tensor ranks: norms, dropouts and their "
                   "saved activations take 1/t of the memory.");
  options.add_flag(
      "no-async-tensor-model-parallel-allreduce", &no_async_tensor_all_reduce,
      "Do not hide the tensor-parallel communication of backward behind the products of weight gradients.");
  options.add_flag("cuda-graphs", &cuda_graphs,
                   "GPU: record the work of a micro-batch once and replay it, which saves host time. The first "
                   "micro-batch of an update is not replayed with --overlap-param-gather, the last one not with "
                   "--overlap-grad-reduce. Not yet proved on a GPU.");
  options.add_choice("recompute-granularity", &recomputation.granularity,
                     {{"none", model::RecomputeGranularity::none},
                      {"selective", model::RecomputeGranularity::selective},
                      {"full", model::RecomputeGranularity::full}},
                     "Work that backward repeats to save memory: selective, the attention itself (not Q, K, V) and the "
                     "activation in the feed-forward block; full, whole layers.");
  options.add_choice("recompute-method", &recomputation.method,
                     {{"uniform", model::RecomputeMethod::uniform}, {"block", model::RecomputeMethod::block}},
                     "Form of full recomputation: groups of --recompute-num-layers layers that keep only their input, "
                     "or that many layers at the start of each chunk, one by one. Default: uniform.");
  options.add("recompute-num-layers", &recomputation.layers, "N", "Layers of a group, or of a chunk.", layer_count());
  options.add_flag("recompute-activations", &recompute_activations, "The same as --recompute-granularity selective.");
  options.add_flag("distribute-saved-activations", &recomputation.distribute,
                   "With full recomputation: each tensor rank keeps only its part of a group's input.");
  options.add_choice("init-method", &initialisation.method,
                     {{"normal", model::InitMethod::normal}, {"hashed-uniform", model::InitMethod::hashed_uniform}},
                     "Initial weights: normal deviates of the seed, or a formula of name and index alone.");
  options.add("init-method-std", &initialisation.std, "X", "Standard deviation of normal initial weights.",
              at_least(0));
  options.add("init-scale", &initialisation.scale, "X", "Multiplies the initial matrices of the layers.", at_least(0));

  options.section("Data parallelism");
  options.add_flag("use-distributed-optimizer", &distributed_optimizer,
                   "Each data rank keeps and updates its shard of master weights and moments (ZeRO 1).");
  options.add_choice<std::optional<parallel::DataSharding>>(
      "data-parallel-sharding-strategy", &data_sharding,
      {{"no_shard", parallel::DataSharding::none},
       {"optim", parallel::DataSharding::optimizer},
       {"optim_grads", parallel::DataSharding::optimizer_and_gradients}},
      "State that the data ranks keep in shards; optim is --use-distributed-optimizer, optim_grads shards the "
      "gradients too (ZeRO 2) and reduces them after every micro-batch.");
  options.add_choice<std::optional<DType>>(
      "main-grads-dtype", &gradient_type, {{"fp32", DType::fp32}, {"bf16", DType::bf16}, {"fp16", DType::fp16}},
      "Type in which gradients are kept and reduced: fp32 (the default) or a 16-bit --dtype itself.");
  options.add_flag("accumulate-allreduce-grads-in-fp32", &fp32_gradients, "The same as --main-grads-dtype fp32.");
  options.add_flag("overlap-grad-reduce", &overlap_reduce, "Reduce gradients, in buckets, while backward goes on.");
  options.add_flag("overlap-param-gather", &overlap_gather,
                   "With shards: gather the updated parameters while the next forward goes on.");
  options.add("ddp-bucket-size", &bucket_elements, "N",
              "Parameters of a bucket; default max(40 M, 1 M x data ranks) with an overlap, all without.", at_least(1));

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

  options.section("Data");
  options.add("data-path", &data_path, "FILE...", "Corpus, or weight, corpus, weight, corpus ...");
  options.add("split", &split, "A,B,C",
              "Shares of training, validation and test. The test split is evaluated once, at the end of the run; the "
              "default's only where it has a sample.");
  options.add_choice(
      "split-by", &split_by,
      {{"auto", data::SplitBy::automatic}, {"documents", data::SplitBy::documents}, {"tokens", data::SplitBy::tokens}},
      "Unit of --split; auto: tokens where there are fewer documents than 100.");
  options.add_choice(
      "sampling", &sampling, {{"shuffled", data::Sampling::shuffled}, {"sequential", data::Sampling::sequential}},
      "sequential reads the corpus from its start, ignores --split, evaluates only where --eval-iters is given, and "
      "has no test.");
  options.add("data-cache-path", &data_cache_path, "DIR",
              "Folder that keeps the order of samples of large corpora for later runs; default index-cache beside each "
              "corpus.");
  options.add_choice("data-check", &data_check,
                     {{"none", CorpusCheck::none}, {"sample", CorpusCheck::sample}, {"full", CorpusCheck::full}},
                     "Part of the corpora compared with their digests before training: nothing, 32 blocks of a million "
                     "tokens, or all.");

  options.section("Run");
  options.add("log-interval", &run.log_interval, "N", "Iterations between lines of the log.", at_least(1));
  options.add("eval-interval", &run.eval_interval, "N", "Iterations between evaluations.", at_least(1));
  options.add("eval-iters", &run.eval_iterations, "N", "Global batches of an evaluation; 0: none.", at_least(0));
  options.add("save", &save, "DIR", "Folder for checkpoints.");
  options.add("load", &load, "DIR", "Continue from the newest checkpoint of this folder, or from one step's folder.");
  options.add_flag("load-or-init", &load_or_init, "With --load: begin anew where there is no checkpoint yet.");
  options.add_flag(
      "allow-new-data", &allow_new_data,
      "With --load: go on with other corpora or another order of samples; it begins at the sample number the "
      "checkpoint has reached.");
  options.add("save-interval", &run.save_interval, "N", "Iterations between checkpoints.", at_least(1));
  options.add("keep-last", &keep_last, "K", "Keep only the K newest checkpoints; 0: all.", at_least(0));
  options.add_flag("async-save", &async_save,
                   "Write checkpoints during training, from a copy of the state in host memory. A write error is "
                   "reported at the next save, or at the end of the run.");
  options.add_choice("on-save-error", &on_save_error,
                     {{"stop", train::OnSaveError::stop}, {"continue", train::OnSaveError::warn}},
                     "When a checkpoint cannot be written: end the run with exit code 5, or warn, train on and try "
                     "again at the next save. A last state that is not saved is exit code 5 in any case.");
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
  for (const char* name : {"seq-length", "lr", "data-path"}) options.require(name);
}

void TrainCommandOptions::settle(const Options& options, int data_ranks) {
  std::string problems;
  const auto expect = [&](bool holds, const std::string& problem) {
    if (!holds) problems += (problems.empty() ? "" : "\n  ") + problem;
  };
  expect(!(bf16 && fp16), "--bf16 and --fp16 exclude each other");
  expect(!(bf16 || fp16) || !options.given("dtype") || dtype == (bf16 ? DType::bf16 : DType::fp16),
         fmt::format("--{} contradicts --dtype {}", bf16 ? "bf16" : "fp16", name_of(dtype)));
  if (bf16) dtype = DType::bf16;
  if (fp16) dtype = DType::fp16;

  using model::RecomputeGranularity;
  if (recompute_activations) {
    expect(!options.given("recompute-granularity") || recomputation.selective(),
           "--recompute-activations means --recompute-granularity selective and contradicts another one");
    recomputation.granularity = RecomputeGranularity::selective;
  }
  const bool full = recomputation.granularity == RecomputeGranularity::full;
  for (const char* name : {"recompute-method", "recompute-num-layers", "distribute-saved-activations"}) {
    expect(full || !options.given(name), fmt::format("--{} needs --recompute-granularity full", name));
  }
  expect(!recomputation.distribute || grid.tensor > 1,
         "--distribute-saved-activations needs --tensor-model-parallel-size 2 or more");
  expect(!recomputation.distribute || !sequence_parallel,
         "--distribute-saved-activations and --sequence-parallel exclude each other: with the second, activations are "
         "distributed already");

  if (!global_batch_size) global_batch_size = micro_batch_size * data_ranks;
  expect(train_iterations.has_value() != train_samples.has_value(),
         "either --train-iters or --train-samples must be given");
  expect(ramp_up_text.empty() || train_samples, "--rampup-batch-size needs --train-samples instead of --train-iters");
  try {
    if (!ramp_up_text.empty()) ramp_up = ramp_up_of(ramp_up_text);
    batches(data_ranks);
  } catch (const ConfigError& error) {
    expect(false, error.what());
  }

  using parallel::DataSharding;
  expect(!distributed_optimizer || data_sharding != DataSharding::none,
         "--use-distributed-optimizer contradicts --data-parallel-sharding-strategy no_shard");
  if (!data_sharding) data_sharding = distributed_optimizer ? DataSharding::optimizer : DataSharding::none;
  expect(!overlap_gather || data_sharding != DataSharding::none,
         "--overlap-param-gather needs --use-distributed-optimizer: without shards nothing is gathered");
  const DType accumulated = accumulation_type(dtype);
  if (fp32_gradients) {
    expect(gradient_type.value_or(DType::fp32) == DType::fp32,
           fmt::format("--accumulate-allreduce-grads-in-fp32 contradicts --main-grads-dtype {}",
                       name_of(gradient_type.value_or(DType::fp32))));
    gradient_type = DType::fp32;
  }
  expect(!gradient_type || *gradient_type == accumulated || *gradient_type == dtype,
         fmt::format(
             "--main-grads-dtype {} does not go with --dtype {}, whose gradients are {}",
             name_of(gradient_type.value_or(accumulated)), name_of(dtype),
             dtype == accumulated ? name_of(dtype) : fmt::format("{} or {}", name_of(accumulated), name_of(dtype))));
  const bool rounded = gradient_type && *gradient_type != accumulated;
  expect(!rounded || data_sharding != DataSharding::optimizer_and_gradients,
         "--data-parallel-sharding-strategy optim_grads keeps its shard of the gradients in fp32: leave out "
         "--main-grads-dtype");

  expect(!cuda_graphs || !overlap_reduce || data_sharding != DataSharding::optimizer_and_gradients,
         "--cuda-graphs with --data-parallel-sharding-strategy optim_grads goes without --overlap-grad-reduce: what is "
         "recorded cannot wait for what travels beside it");
  expect(!cuda_graphs || grid.device.communicator != DeviceTransport::staged,
         "--cuda-graphs goes without --communicator staged, with which the host takes part in every message");
  expect(!cuda_graphs || !grid.device.check_launches,
         "--cuda-graphs goes without --check-launches, with which the host waits for every kernel");

  for (const char* name : {"adam-beta1", "adam-beta2", "adam-eps"}) {
    expect(optimizer.kind == optim::OptimizerKind::adam || !options.given(name),
           fmt::format("--{} needs --optimizer adam", name));
  }
  expect(optimizer.kind == optim::OptimizerKind::sgd || !options.given("sgd-momentum"),
         "--sgd-momentum needs --optimizer sgd");
  settle_learning_rate(options, expect);

  loss_scale.dynamic = dtype == DType::fp16 && !constant_loss_scale;
  if (constant_loss_scale) loss_scale.initial_scale = *constant_loss_scale;
  if (!loss_scale.dynamic) loss_scale.minimum_scale = loss_scale.initial_scale = constant_loss_scale.value_or(1);

  if (sampling == data::Sampling::sequential && !options.given("eval-iters")) run.eval_iterations = 0;
  try {
    corpora();
  } catch (const ConfigError& error) {
    expect(false, error.what());
  }
  expect(!load_or_init || !load.empty(), "--load-or-init needs --load");
  expect(!allow_new_data || !load.empty(), "--allow-new-data needs --load");
  expect(run.save_interval == 0 || !save.empty(), "--save-interval needs --save");
  expect(!async_save || !save.empty(), "--async-save needs --save");
  expect(keep_last == 0 || !save.empty(), "--keep-last needs --save");
  expect(!options.given("on-save-error") || !save.empty(), "--on-save-error needs --save");
  TRIREME_CHECK(problems.empty(), ConfigError, "{}", problems);
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

std::vector<TrainCommandOptions::WeightedPath> TrainCommandOptions::corpora() const {
  constexpr const char* remedy = "give one corpus, or a weight before each: 0.7 a.h5 0.3 b.h5";
  if (data_path.size() == 1) return {{data_path[0], 1}};
  std::vector<WeightedPath> list;
  for (std::size_t i = 0; i < data_path.size(); i += 2) {
    double weight = 0;
    const std::string& text = data_path[i];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), weight);
    const bool is_weight = error == std::errc() && end == text.data() + text.size();
    const std::size_t stray = std::max<std::size_t>(i, 1);  // the first word may be the only corpus
    TRIREME_CHECK(is_weight, ConfigError, "--data-path: unexpected '{}' after '{}'; {}", shortened(data_path[stray]),
                  shortened(data_path[stray - 1]), remedy);
    TRIREME_CHECK(i + 1 < data_path.size(), ConfigError, "--data-path: no corpus follows the weight {}; {}", text,
                  remedy);
    TRIREME_CHECK(std::isfinite(weight) && weight > 0, ConfigError,
                  "--data-path: {} has weight {}; weights must be positive numbers", shortened(data_path[i + 1]), text);
    list.push_back({data_path[i + 1], weight});
  }
  return list;
}

train::LayoutOptions TrainCommandOptions::layout() const {
  return {.dtype = dtype,
          .sequence_length = sequence_length,
          .micro_batch_size = micro_batch_size,
          .vocabulary_multiple = grid.vocabulary_multiple,
          .padded_vocabulary_size = grid.padded_vocabulary,
          .sequence_parallel = sequence_parallel,
          .async_tensor_all_reduce = !no_async_tensor_all_reduce,
          .recomputation = recomputation,
          .pipeline = grid.pipeline_cut(),
          .schedule = schedule,
          .overlap_p2p = overlap_p2p,
          .scatter_gather = !no_scatter_gather,
          .data_parallel = data_parallel(),
          .cuda_graphs = cuda_graphs};
}

parallel::DataParallelOptions TrainCommandOptions::data_parallel() const {
  return {.sharding = *data_sharding,
          .rounded_gradients = gradient_type && *gradient_type != accumulation_type(dtype),
          .overlap_reduce = overlap_reduce,
          .overlap_gather = overlap_gather,
          .bucket_elements = bucket_elements.value_or(0)};
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
