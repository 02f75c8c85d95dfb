#include "src/app/run_config/optimizer_options.hpp"

#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"
#include "src/optim/grad_norm.hpp"

namespace trireme::app {

void OptimizerOptions::declare(Options& options) {
  options.add_choice(
      "optimizer", &optimizer.kind, optim::optimizer_kinds,
      "adam: AdamW, with decoupled weight decay. sgd: SGD with momentum, with weight decay added to the gradient. "
      "muon: orthogonalised momentum for the matrices of the layers, in a BERT also those of the pooler and of the "
      "transform before the masked tokens' output; AdamW for embeddings, output layers, norms and biases.");
  options.add("lr", &lr.maximum, "X", "Peak learning rate.", at_least(0));
  options.add("min-lr", &lr.minimum, "X", "Learning rate at the end of the decay.", at_least(0));
  options.add_choice("lr-decay-style", &lr.style, optim::lr_decay_styles,
                     "Decay of the learning rate after the warm-up. WSD: none until the final part of the decay.");
  options.add_choice("lr-wsd-decay-style", &lr.wsd_style, optim::wsd_decay_styles, "Shape of WSD's final part.");
  options.add("lr-wsd-decay-iters", &lr_wsd_decay_iterations, "N", "Updates of WSD's final part.", update_count(1));
  options.add("lr-wsd-decay-samples", &lr_wsd_decay_samples, "N", "With --train-samples: samples of WSD's final part.",
              update_count(1));
  options.add("lr-warmup-iters", &lr_warmup_iterations, "N", "Updates of linear warm-up.", update_count(0));
  options.add("lr-warmup-init", &lr.initial, "X", "Learning rate at the start of the warm-up.", at_least(0));
  options.add("lr-warmup-samples", &lr_warmup_samples, "N", "With --train-samples: samples of linear warm-up.",
              update_count(0));
  options.add("lr-warmup-fraction", &lr_warmup_fraction, "X", "Warm-up as a fraction of the decay.", between(0, 1));
  options.add("lr-decay-iters", &lr_decay_iterations, "N", "Update at which the decay ends; default --train-iters.",
              update_count(1));
  options.add("lr-decay-samples", &lr_decay_samples, "N",
              "With --train-samples: samples after which the decay ends; default all.", update_count(1));
  options.add("weight-decay", &optimizer.weight_decay, "X", "Weight decay of matrices and embeddings.", at_least(0));
  options.add_flag("do-layernorm-bias-weight-decay", &optimizer.decays_all,
                   "Apply the weight decay to biases and normalisation weights, too.");
  options.add_choice<std::optional<optim::WeightDecayStyle>>(
      "weight-decay-incr-style", &weight_decay_style,
      {{"constant", std::nullopt},
       {"linear", optim::WeightDecayStyle::linear},
       {"cosine", optim::WeightDecayStyle::cosine}},
      "Growth of the weight decay over the run, from --start-weight-decay to --end-weight-decay.");
  options.add("start-weight-decay", &start_weight_decay, "X", "Weight decay before the first update.", at_least(0));
  options.add("end-weight-decay", &end_weight_decay, "X", "Weight decay of the last update.", at_least(0));
  options.add("adam-beta1", &optimizer.adamw.beta1, "X", "Decay of the first moment.", between(0, 1));
  options.add("adam-beta2", &optimizer.adamw.beta2, "X", "Decay of the second moment.", between(0, 1));
  options.add("adam-eps", &optimizer.adamw.epsilon, "X", "Added to the root of the second moment.", at_least(0));
  options.add("sgd-momentum", &optimizer.sgd.momentum, "X", "Momentum of SGD.", between(0, 1));
  options.add("muon-momentum", &optimizer.muon.momentum, "X", "Momentum of Muon.", between(0, 1));
  options.add_flag("muon-nesterov", &optimizer.muon.nesterov, "Muon: Nesterov momentum.");
  options.add("muon-num-ns-steps", &optimizer.muon.newton_schulz.steps, "N",
              "Muon: Newton-Schulz steps that orthogonalise a matrix.", between(1, 100));
  options.add_choice("muon-coefficient-type", &optimizer.muon.newton_schulz.coefficients,
                     optim::newton_schulz_coefficients,
                     "Muon: Newton-Schulz coefficients, five sets in turn, or one for every step.");
  options.add_choice(
      "muon-fp32-matmul-prec", &optimizer.muon.newton_schulz.products,
      {{"medium", optim::NewtonSchulzProducts::device}, {"high", optim::NewtonSchulzProducts::full}},
      "Muon: precision of the Newton-Schulz GEMMs. medium: bf16 in 16-bit training on GPUs, otherwise fp32; high: "
      "fp32.");
  options.add_choice(
      "muon-scale-mode", &optimizer.muon.scale, optim::muon_scales,
      "Muon: factor of an update of r rows and c columns: the root of max(r, c), r / c or max(1, r / c).");
  options.add("muon-extra-scale-factor", &optimizer.muon.extra_scale, "X", "Muon: additional factor.", at_least(0));
  options.add_flag("muon-no-split-qkv", &no_split_qkv,
                   "Muon: orthogonalise queries, keys and values as one matrix, not separately; without grouped "
                   "queries and latent attention.");
  options.add("decoupled-lr", &decoupled_lr, "X",
              "Peak learning rate of the token embedding and the output layer, instead of --lr.", at_least(0));
  options.add("decoupled-min-lr", &decoupled_min_lr, "X",
              "Their learning rate at the end of the decay; default --min-lr.", at_least(0));
  options.add("clip-grad", &clip_grad, "X", "Maximum gradient norm; 0: no clipping.", at_least(0));
  options.add("grad-norm-type", &grad_norm_type, "P|inf",
              "Norm of the gradients: the P-th root of the sum of P-th powers, P from 1 to 16; or inf, the maximum.");
  options.require({"lr"});
}

void OptimizerOptions::settle(const Options& options, const BatchOptions& batch, Problems& problems) {
  using enum optim::OptimizerKind;
  const optim::OptimizerKind kind = optimizer.kind;
  problems.need(options, {"adam-beta1", "adam-beta2", "adam-eps"}, kind != sgd, "--optimizer adam or muon");
  problems.need(options,
                {"muon-momentum", "muon-nesterov", "muon-num-ns-steps", "muon-coefficient-type",
                 "muon-fp32-matmul-prec", "muon-scale-mode", "muon-extra-scale-factor", "muon-no-split-qkv"},
                kind == muon, "--optimizer muon");
  problems.need(options, {"use-precision-aware-optimizer", "exp-avg-dtype", "exp-avg-sq-dtype"}, kind == adam,
                "--optimizer adam");
  problems.need(options, {"sgd-momentum"}, kind == sgd, "--optimizer sgd");
  optimizer.muon.split_qkv = !no_split_qkv;
  settle_clipping(problems);
  if (!batch.has_length()) return;
  settle_learning_rate(options, batch, problems);
  settle_decoupled_rate(options, problems);
  settle_weight_decay(options, batch, problems);
}

void OptimizerOptions::settle_clipping(Problems& problems) {
  if (grad_norm_type == "inf") {
    grad_norm_power = optim::infinity_norm;
    return;
  }
  grad_norm_power = parse_number<int>(grad_norm_type).value_or(0);
  problems.expect(
      grad_norm_power >= 1 && grad_norm_power <= 16,
      fmt::format("--grad-norm-type {} is neither a whole number from 1 to 16 nor inf", shortened(grad_norm_type)));
}

void OptimizerOptions::settle_decoupled_rate(const Options& options, Problems& problems) {
  problems.need(options, {"decoupled-min-lr"}, decoupled_lr.has_value(), "--decoupled-lr");
  if (!decoupled_lr) return;
  decoupled_rate = {*decoupled_lr, decoupled_min_lr.value_or(lr.minimum)};
  problems.expect(decoupled_rate->minimum <= decoupled_rate->maximum,
                  fmt::format("--decoupled-min-lr {} (default --min-lr) must be at most --decoupled-lr {}",
                              decoupled_rate->minimum, decoupled_rate->maximum));
  problems.expect(lr.initial <= decoupled_rate->maximum,
                  fmt::format("--lr-warmup-init {} must be at most --decoupled-lr {}", lr.initial, *decoupled_lr));
}

void OptimizerOptions::settle_learning_rate(const Options& options, const BatchOptions& batch, Problems& problems) {
  lr.by_samples = batch.train_samples.has_value();
  const char* unit = lr.by_samples ? "samples" : "iters";
  const char* other = lr.by_samples ? "iters" : "samples";
  for (const char* name : {"lr-warmup-", "lr-decay-", "lr-wsd-decay-"}) {
    problems.expect(
        !options.given(std::string(name) + other),
        fmt::format("--{}{} needs --train-{}; with --train-{} give --{}{}{}", name, other, other, unit, name, unit,
                    name == std::string_view("lr-wsd-decay-") && lr.style != optim::LrDecayStyle::wsd
                        ? " and --lr-decay-style WSD"
                        : ""));
  }
  lr.decay = lr.by_samples ? lr_decay_samples.value_or(*batch.train_samples)
                           : lr_decay_iterations.value_or(*batch.train_iterations);
  const std::optional<std::int64_t>& warmup = lr.by_samples ? lr_warmup_samples : lr_warmup_iterations;
  problems.exclude(!lr_warmup_fraction || !warmup, "lr-warmup-fraction", fmt::format("lr-warmup-{}", unit));
  lr.warmup = static_cast<double>(warmup.value_or(0));
  if (lr_warmup_fraction) lr.warmup = *lr_warmup_fraction * static_cast<double>(lr.decay);
  problems.expect(lr.initial == 0 || lr.warmup > 0, "--lr-warmup-init above 0 needs a warm-up");
  settle_wsd(options, unit, problems);
  // A run of zero iterations writes initial weights and has no learning rate.
  const bool has_wsd_decay = lr.style != optim::LrDecayStyle::wsd || lr.wsd_decay > 0;
  if (has_wsd_decay && (batch.train_samples || *batch.train_iterations > 0)) problems.attempt([&] { lr.validate(); });
}

void OptimizerOptions::settle_wsd(const Options& options, const char* unit, Problems& problems) {
  const std::optional<std::int64_t>& length = lr.by_samples ? lr_wsd_decay_samples : lr_wsd_decay_iterations;
  if (lr.style == optim::LrDecayStyle::wsd) {
    lr.wsd_decay = length.value_or(0);
    problems.expect(length.has_value(), fmt::format("--lr-decay-style WSD needs --lr-wsd-decay-{}", unit));
    return;
  }
  problems.need(options, {"lr-wsd-decay-style"}, false,
                fmt::format("--lr-decay-style WSD and --lr-wsd-decay-{}", unit));
  problems.need(options, {lr.by_samples ? "lr-wsd-decay-samples" : "lr-wsd-decay-iters"}, false,
                "--lr-decay-style WSD");
}

void OptimizerOptions::settle_weight_decay(const Options& options, const BatchOptions& batch, Problems& problems) {
  if (!weight_decay_style) {
    constexpr std::string_view style = "--weight-decay-incr-style linear or cosine, and";
    problems.need(options, {"start-weight-decay"}, false, fmt::format("{} --end-weight-decay", style));
    problems.need(options, {"end-weight-decay"}, false, fmt::format("{} --start-weight-decay", style));
    return;
  }
  problems.expect(start_weight_decay && end_weight_decay,
                  "--weight-decay-incr-style linear or cosine needs --start-weight-decay and --end-weight-decay");
  if (!start_weight_decay || !end_weight_decay) return;
  weight_decay_ramp = {*weight_decay_style, *start_weight_decay, *end_weight_decay,
                       lr.by_samples ? *batch.train_samples : *batch.train_iterations};
  problems.attempt([&] { weight_decay_ramp->validate(); });
}

}  // namespace trireme::app
