#include "src/app/run_config/precision_options.hpp"

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
  options.add("max-skipped", &max_skipped, "N",
              "Iterations in a row without finite gradients that end the run; with fp16's dynamic loss scale only "
              "those at --min-loss-scale count.",
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
  check_moments(options, problems);
}

void PrecisionOptions::check_moments(const Options& options, Problems& problems) const {
  for (const auto& [name, type] : {std::pair{"exp-avg-dtype", exp_avg_dtype}, {"exp-avg-sq-dtype", exp_avg_sq_dtype}}) {
    problems.expect(precision_aware || !options.given(name),
                    fmt::format("--{} needs --use-precision-aware-optimizer", name));
    problems.expect(dtype != DType::fp64 || !options.given(name),
                    fmt::format("--{} {} does not go with --dtype fp64, whose moments are fp64", name, name_of(type)));
  }
}

}  // namespace trireme::app
