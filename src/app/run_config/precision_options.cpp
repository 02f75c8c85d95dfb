#include "src/app/run_config/precision_options.hpp"

#include "src/app/options/number_list.hpp"

namespace trireme::app {

void PrecisionOptions::declare(Options& options) {
  options.add_choice("dtype", &dtype,
                     {{"fp64", DType::fp64}, {"fp32", DType::fp32}, {"bf16", DType::bf16}, {"fp16", DType::fp16}},
                     "Type of weights and activations; 16-bit types have fp32 master weights.");
  options.add_flag("bf16", &bf16, "The same as --dtype bf16.");
  options.add_flag("fp16", &fp16, "The same as --dtype fp16: with dynamic loss scaling.");
  options.add_flag("use-precision-aware-optimizer", &precision_aware,
                   "AdamW keeps its moments in the types of --exp-avg-dtype and --exp-avg-sq-dtype, and computes in "
                   "fp32.");
  const std::vector<std::pair<std::string, DType>> types = {
      {"fp32", DType::fp32}, {"bf16", DType::bf16}, {"fp16", DType::fp16}};
  options.add_choice("exp-avg-dtype", &exp_avg_dtype, types,
                     "With --use-precision-aware-optimizer: type of the first moment. fp16 is refused: it would need a "
                     "scale for every tensor.");
  options.add_choice("exp-avg-sq-dtype", &exp_avg_sq_dtype, types,
                     "The same of the second moment. bf16 needs an --adam-beta2 of at most 0.996: it does not hold "
                     "smaller changes of a number.");
}

void PrecisionOptions::declare_loss_scale(Options& options) {
  options.add("loss-scale", &constant_loss_scale, "X",
              "Constant loss scale instead of the dynamic one of fp16; 0: the dynamic one.", at_least(0));
  options.add("initial-loss-scale", &loss_scale.initial_scale, "X", "First dynamic loss scale (default 2^32).",
              at_least(1));
  options.add("min-loss-scale", &loss_scale.minimum_scale, "X", "Least dynamic loss scale.", at_least(0));
  options.add("loss-scale-window", &loss_scale.growth_window, "N", "Good updates before the scale doubles.",
              at_least(1));
  options.add("hysteresis", &loss_scale.hysteresis, "N", "Overflows before the scale is halved.", at_least(1));
  options.add_flag("no-check-for-nan-in-loss-and-grad", &no_check_for_nan,
                   "Skip updates whose loss or gradients are not finite. Otherwise such a step runs again: the same "
                   "result ends the run with exit code 8 and names the first bad tensor, another result is a machine's "
                   "fault. With a dynamic loss scale they are always skipped.");
  options.add_flag(
      "check-for-spiky-loss", &check_for_spiky_loss,
      "Run a step again whose loss is at least --spiky-loss-factor times the largest of the first 100 losses. "
      "Another result is a machine's fault; the same one is a warning.");
  options.add("spiky-loss-factor", &spiky_loss_factor, "X", "Factor of a spiky loss; default 10, as in Megatron-LM.",
              at_least(1));
  options.add_flag("skip-spiky-loss", &guards.skip_spiky_loss,
                   "With --check-for-spiky-loss: skip updates of spiky losses.");
  options.add("iterations-to-skip", &iterations_to_skip, "N...",
              "Consume the samples of these iterations, from 1, and do nothing else in them.");
  options.add("max-machine-faults", &guards.max_machine_faults, "N",
              "Go on with the second result after at most N such faults of machines. The next one ends the run with "
              "exit code 9 and names rank and host.",
              at_least(0));
  options.add("max-skipped", &max_skipped, "N",
              "Skipped updates in a row that end the run; with fp16's dynamic loss scale only those at "
              "--min-loss-scale count.",
              at_least(1));
}

void PrecisionOptions::settle(const Options& options, Problems& problems) {
  problems.expect(!(bf16 && fp16), "--bf16 and --fp16 exclude each other");
  problems.expect(!(bf16 || fp16) || !options.given("dtype") || dtype == (bf16 ? DType::bf16 : DType::fp16),
                  fmt::format("--{} contradicts --dtype {}", bf16 ? "bf16" : "fp16", name_of(dtype)));
  if (bf16) dtype = DType::bf16;
  if (fp16) dtype = DType::fp16;
  const double constant = constant_loss_scale.value_or(0);
  const bool has_scaler = dtype == DType::fp16 || dtype == DType::bf16;  // none in bf16, but its options may be given
  problems.expect(has_scaler || constant_loss_scale != 0.0,
                  fmt::format("--loss-scale 0, a dynamic loss scale, needs --fp16, not {}", name_of(dtype)));
  for (const char* name : {"initial-loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis"}) {
    if (!options.given(name)) continue;
    problems.expect(constant == 0,
                    fmt::format("--{} and --loss-scale exclude each other: a constant loss scale never changes", name));
    problems.expect(has_scaler, fmt::format("--{} needs --fp16: {} is trained without a loss scale that changes", name,
                                            name_of(dtype)));
  }

  loss_scale.dynamic = dtype == DType::fp16 && constant == 0;
  if (!loss_scale.dynamic) loss_scale.minimum_scale = loss_scale.initial_scale = constant > 0 ? constant : 1;
  problems.attempt([&] { optim::LossScaler scaler(loss_scale); });

  guards.check_for_nan = !no_check_for_nan;
  problems.expect(check_for_spiky_loss || !spiky_loss_factor, "--spiky-loss-factor needs --check-for-spiky-loss");
  problems.expect(check_for_spiky_loss || !guards.skip_spiky_loss, "--skip-spiky-loss needs --check-for-spiky-loss");
  if (check_for_spiky_loss) guards.spiky_loss_factor = spiky_loss_factor.value_or(10);
  problems.attempt([&] {
    const std::vector<std::int64_t> iterations = number_list("--iterations-to-skip", iterations_to_skip, 1);
    guards.iterations_to_skip.insert(iterations.begin(), iterations.end());
  });
  const bool skips = no_check_for_nan || loss_scale.dynamic;
  problems.expect(skips || !options.given("max-skipped"),
                  "--max-skipped needs --no-check-for-nan-in-loss-and-grad or fp16 with a dynamic loss scale: else the "
                  "first loss or gradient that is not finite ends the run");
  problems.expect(!skips || check_for_spiky_loss || !options.given("max-machine-faults"),
                  "--max-machine-faults excludes --no-check-for-nan-in-loss-and-grad and fp16's dynamic loss scale, "
                  "with which no step runs again, unless --check-for-spiky-loss does it");
  check_moments(options, problems);
}

void PrecisionOptions::check_moments(const Options& options, Problems& problems) const {
  for (const auto& [name, type] : {std::pair{"exp-avg-dtype", exp_avg_dtype}, {"exp-avg-sq-dtype", exp_avg_sq_dtype}}) {
    problems.expect(precision_aware || !options.given(name),
                    fmt::format("--{} needs --use-precision-aware-optimizer", name));
    problems.expect(
        dtype != DType::fp64 || !options.given(name),
        fmt::format("--{} {} is not supported with --dtype fp64, whose moments are fp64", name, name_of(type)));
  }
}

}  // namespace trireme::app
