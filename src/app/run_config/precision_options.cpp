#include "src/app/run_config/precision_options.hpp"

namespace trireme::app {

void PrecisionOptions::declare(Options& options) {
  options.add_choice("dtype", &dtype, training_types,
                     "Type of weights and activations; 16-bit types have fp32 master weights.");
  options.add_flag("bf16", &bf16, "The same as --dtype bf16.");
  options.add_flag("fp16", &fp16, "The same as --dtype fp16: with dynamic loss scaling.");
  declare_fp8(options);
  options.add_flag("use-precision-aware-optimizer", &precision_aware,
                   "AdamW stores its moments in the types of --exp-avg-dtype and --exp-avg-sq-dtype, and computes in "
                   "fp32.");
  options.add_choice("exp-avg-dtype", &exp_avg_dtype, types_without_fp64,
                     "With --use-precision-aware-optimizer: type of the first moment. fp16 is refused: it would need a "
                     "per-tensor scale.");
  options.add_choice("exp-avg-sq-dtype", &exp_avg_sq_dtype, types_without_fp64,
                     "The same for the second moment. bf16 needs an --adam-beta2 of at most 0.996: it cannot represent "
                     "smaller relative changes.");
}

void PrecisionOptions::declare_fp8(Options& options) {
  options.add_choice("fp8-format", &fp8_is_hybrid,
                     std::vector<Choice<std::optional<bool>>>{{"e4m3", false}, {"hybrid", true}},
                     "Round the operands of the products of attention's and dense feed-forward blocks' weights to FP8: "
                     "e4m3, or hybrid with gradients in e5m2. Other products, also of experts, embeddings and output "
                     "layer, keep --dtype. On GPUs from compute capability 8.9 on.");
  options.add_choice("fp8-recipe", &fp8.recipe, train::fp8_recipes,
                     "Scales in FP8, powers of two: delayed, from the tensor's largest magnitude in earlier updates; "
                     "tensorwise, from the tensor; blockwise, from blocks of 128 elements, of weights 128 x 128. With "
                     "delayed the first update is not rounded, and the micro-batch size does not matter.");
  options.add("fp8-margin", &fp8.margin, "N", "Keep magnitudes in FP8 below 2^-N of the largest number.",
              between(0, 10));
  options.add("fp8-amax-history-len", &fp8.history, "N", "Updates that delayed scales look back.",
              between(1, 1'000'000));
  options.add_choice("fp8-amax-compute-algo", &fp8.largest_of_history, {{"most_recent", false}, {"max", true}},
                     "Magnitude of delayed scales: that of the latest update, or the largest of the history.");
  options.add_flag("no-fp8-wgrad", &no_fp8_weight_gradients, "Compute the gradients of weights without FP8.");
  options.add_flag("first-last-layers-bf16", &first_last_layers_bf16,
                   "Compute the first and the last layers without FP8.");
  options.add("num-layers-at-start-in-bf16", &first_layers_in_bf16, "N", "With --first-last-layers-bf16: first layers.",
              between(0, model::max_layers));
  options.add("num-layers-at-end-in-bf16", &last_layers_in_bf16, "N", "With --first-last-layers-bf16: last layers.",
              between(0, model::max_layers));
}

void PrecisionOptions::settle_fp8(const Options& options, Problems& problems) {
  problems.need(options,
                {"fp8-recipe", "fp8-margin", "fp8-amax-history-len", "fp8-amax-compute-algo", "no-fp8-wgrad",
                 "first-last-layers-bf16"},
                fp8_is_hybrid.has_value(), "--fp8-format");
  problems.need(options, {"fp8-amax-history-len", "fp8-amax-compute-algo"}, fp8.recipe == parallel::Fp8Recipe::delayed,
                "--fp8-recipe delayed");
  problems.need(options, {"num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16"},
                fp8_is_hybrid && first_last_layers_bf16, "--fp8-format and --first-last-layers-bf16");
  fp8.used = fp8_is_hybrid.has_value();
  fp8.hybrid = fp8_is_hybrid.value_or(true);
  fp8.weight_gradients = !no_fp8_weight_gradients;
  fp8.first_layers = first_last_layers_bf16 ? first_layers_in_bf16 : 0;
  fp8.last_layers = first_last_layers_bf16 ? last_layers_in_bf16 : 0;
}

void PrecisionOptions::declare_loss_scale(Options& options) {
  options.add("loss-scale", &constant_loss_scale, "X",
              "Constant loss scale instead of the dynamic one of fp16; 0: the dynamic one.", at_least(0));
  options.add("initial-loss-scale", &loss_scale.initial_scale, "X", "First dynamic loss scale (default 2^32).",
              at_least(1));
  options.add("min-loss-scale", &loss_scale.minimum_scale, "X", "Minimum dynamic loss scale.", at_least(0));
  options.add("loss-scale-window", &loss_scale.growth_window, "N", "Updates without overflow before the scale doubles.",
              at_least(1));
  options.add("hysteresis", &loss_scale.hysteresis, "N", "Overflows before the scale is halved.", at_least(1));
  options.add_flag(
      "no-check-for-nan-in-loss-and-grad", &no_check_for_nan,
      "Skip updates whose loss or gradients are not finite. Otherwise such a step is repeated: the same result ends "
      "the run with exit code 8 and names the first bad tensor; a different result is a machine fault. With a dynamic "
      "loss scale they are always skipped.");
  options.add_flag(
      "check-for-spiky-loss", &check_for_spiky_loss,
      "Repeat a step whose loss is at least --spiky-loss-factor times the largest of the first 100 losses. A different "
      "result is a machine fault; the same one is a warning.");
  options.add("spiky-loss-factor", &spiky_loss_factor, "X", "Factor of a spiky loss; default 10, as in Megatron-LM.",
              at_least(1));
  options.add_flag("skip-spiky-loss", &guards.skip_spiky_loss,
                   "With --check-for-spiky-loss: skip updates of spiky losses.");
  options.add("iterations-to-skip", &iterations_to_skip, "N",
              "Only consume the samples of these iterations, counted from 1: no computation, no update.", at_least(1));
  options.add(
      "max-machine-faults", &guards.max_machine_faults, "N",
      "Continue with the second result after at most N machine faults. The next one ends the run with exit code 9 "
      "and names rank and host.",
      at_least(0));
  options.add(
      "max-skipped", &max_skipped, "N",
      "Consecutive skipped updates that end the run; with fp16's dynamic loss scale only those at --min-loss-scale "
      "count.",
      at_least(1));
}

void PrecisionOptions::declare_rewinds(Options& options) {
  options.add_flag(
      "rewind-on-spike", &rewind_on_spike,
      "After a spike of the loss go back to an earlier checkpoint, and leave out the samples since. Iterations count "
      "on; "
      "the learning rate continues from the checkpoint's. A loss or gradient that is not finite skips its update, and "
      "counts as a high loss.");
  options.add("spike-z-score", &rewinds.z_score, "X",
              "With --rewind-on-spike: a loss is high if it exceeds the mean of the last 128 others by more than X "
              "times their standard deviation.",
              at_least(0));
  options.add("spike-iterations", &rewinds.iterations, "N", "High losses in a row that are a spike.", at_least(1));
  options.add("rewind-distance", &rewinds.distance, "N",
              "Go back to a checkpoint at least N iterations before the first of them.", at_least(1));
  options.add("max-rewinds", &rewinds.max_rewinds, "N", "Rewinds of a run; the next spike ends it with exit code 8.",
              at_least(1));
}

void PrecisionOptions::settle(const Options& options, Problems& problems) {
  problems.expect(!(bf16 && fp16), "--bf16 and --fp16 exclude each other");
  problems.expect(!(bf16 || fp16) || !options.given("dtype") || dtype == (bf16 ? DType::bf16 : DType::fp16),
                  fmt::format("--{} contradicts --dtype {}", bf16 ? "bf16" : "fp16", name_of(dtype)));
  if (bf16) dtype = DType::bf16;
  if (fp16) dtype = DType::fp16;
  settle_fp8(options, problems);
  const double constant = constant_loss_scale.value_or(0);
  const bool has_scaler = dtype == DType::fp16 || dtype == DType::bf16;  // unused in bf16, but its options may be given
  problems.expect(has_scaler || constant_loss_scale != 0.0,
                  fmt::format("--loss-scale 0, a dynamic loss scale, needs --fp16, not {}", name_of(dtype)));
  for (const char* name : {"initial-loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis"}) {
    if (!options.given(name)) continue;
    problems.expect(constant == 0,
                    fmt::format("--{} and --loss-scale exclude each other: a constant loss scale never changes", name));
    problems.expect(has_scaler,
                    fmt::format("--{} needs --fp16: {} is trained without a dynamic loss scale", name, name_of(dtype)));
  }

  loss_scale.dynamic = dtype == DType::fp16 && constant == 0;
  if (!loss_scale.dynamic) loss_scale.minimum_scale = loss_scale.initial_scale = constant > 0 ? constant : 1;
  problems.attempt([&] { optim::LossScaler scaler(loss_scale); });

  guards.check_for_nan = !no_check_for_nan;
  problems.need(options, {"spiky-loss-factor", "skip-spiky-loss"}, check_for_spiky_loss, "--check-for-spiky-loss");
  if (check_for_spiky_loss) guards.spiky_loss_factor = spiky_loss_factor.value_or(10);
  guards.iterations_to_skip.insert(iterations_to_skip.begin(), iterations_to_skip.end());
  problems.need(options, {"spike-z-score", "spike-iterations", "rewind-distance", "max-rewinds"}, rewind_on_spike,
                "--rewind-on-spike, --save and --save-interval");
  if (rewind_on_spike) guards.rewinds = rewinds;
  const bool skips = no_check_for_nan || loss_scale.dynamic;
  problems.need(options, {"max-skipped"}, skips,
                "--no-check-for-nan-in-loss-and-grad or fp16 with a dynamic loss scale: otherwise the first loss or "
                "gradient that is not finite ends the run");
  problems.expect(!skips || check_for_spiky_loss || !options.given("max-machine-faults"),
                  "--max-machine-faults excludes --no-check-for-nan-in-loss-and-grad and fp16's dynamic loss scale, "
                  "which repeat no step, unless --check-for-spiky-loss is given");
  check_moments(options, problems);
}

void PrecisionOptions::check_moments(const Options& options, Problems& problems) const {
  problems.need(options, {"exp-avg-dtype", "exp-avg-sq-dtype"}, precision_aware, "--use-precision-aware-optimizer");
  for (const auto& [name, type] : {std::pair{"exp-avg-dtype", exp_avg_dtype}, {"exp-avg-sq-dtype", exp_avg_sq_dtype}}) {
    problems.expect(
        dtype != DType::fp64 || !options.given(name),
        fmt::format("--{} {} is not supported with --dtype fp64, whose moments are fp64", name, name_of(type)));
  }
}

}  // namespace trireme::app
