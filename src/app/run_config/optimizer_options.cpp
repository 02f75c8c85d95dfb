#include "src/app/run_config/optimizer_options.hpp"

namespace trireme::app {

void OptimizerOptions::declare(Options& options) {
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
  options.add("lr-warmup-fraction", &lr_warmup_fraction, "X", "Warm-up as a fraction of the decay.", between(0, 1));
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
  options.require("lr");
}

void OptimizerOptions::settle(const Options& options, const BatchOptions& batch, Problems& problems) {
  for (const char* name : {"adam-beta1", "adam-beta2", "adam-eps"}) {
    problems.expect(optimizer.kind == optim::OptimizerKind::adam || !options.given(name),
                    fmt::format("--{} needs --optimizer adam", name));
  }
  problems.expect(optimizer.kind == optim::OptimizerKind::sgd || !options.given("sgd-momentum"),
                  "--sgd-momentum needs --optimizer sgd");
  if (batch.has_length()) settle_learning_rate(options, batch, problems);
}

void OptimizerOptions::settle_learning_rate(const Options& options, const BatchOptions& batch, Problems& problems) {
  lr.by_samples = batch.train_samples.has_value();
  const char* unit = lr.by_samples ? "samples" : "iters";
  const char* other = lr.by_samples ? "iters" : "samples";
  for (const char* name : {"lr-warmup-", "lr-decay-"}) {
    problems.expect(
        !options.given(std::string(name) + other),
        fmt::format("--{}{} needs --train-{}; with --train-{} give --{}{}", name, other, other, unit, name, unit));
  }
  lr.decay = lr.by_samples ? lr_decay_samples.value_or(*batch.train_samples)
                           : lr_decay_iterations.value_or(*batch.train_iterations);
  const std::optional<std::int64_t>& warmup = lr.by_samples ? lr_warmup_samples : lr_warmup_iterations;
  problems.expect(!lr_warmup_fraction || !warmup,
                  fmt::format("--lr-warmup-fraction and --lr-warmup-{} exclude each other", unit));
  lr.warmup = warmup.value_or(0);
  if (lr_warmup_fraction) {
    lr.warmup = static_cast<std::int64_t>(*lr_warmup_fraction * static_cast<double>(lr.decay));
  }
  // A run of no iterations writes initial weights, and has no learning rate.
  if (batch.train_samples || *batch.train_iterations > 0) problems.attempt([&] { lr.validate(); });
}

}  // namespace trireme::app
