#include "src/app/run_config/batch_options.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "src/base/parse_number.hpp"

namespace trireme::app {
namespace {

train::BatchRampUp ramp_up_of(const std::vector<std::string>& texts) {
  std::int64_t values[3] = {};
  bool valid = texts.size() == 3;
  for (std::size_t i = 0; valid && i < 3; ++i) {
    const auto value = parse_number<std::int64_t>(texts[i]);
    valid = value.has_value();
    values[i] = value.value_or(0);
  }
  TRIREME_CHECK(valid, ConfigError, "--rampup-batch-size {}: three numbers are needed: first batch, increment, samples",
                fmt::join(texts, " "));
  return {.start = values[0], .increment = values[1], .samples = values[2]};
}

/// A number of tokens or samples, or a fraction of thousands, millions, billions (1e9) or trillions: "2.5K".
std::int64_t scaled_number(std::string text) {
  constexpr std::pair<char, double> units[] = {{'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'T', 1e12}};
  double scale = 1;
  for (const auto& [letter, value] : units) {
    if (text.empty() || std::toupper(static_cast<unsigned char>(text.back())) != letter) continue;
    scale = value;
    text.pop_back();
    break;
  }
  const auto number = parse_number<double>(text);
  constexpr double limit = 1e18;
  TRIREME_CHECK(number && *number >= 0 && *number * scale <= limit, ConfigError,
                "'{}' is no number from 0 to 1e18, with or without K, M, B or T", text);
  return static_cast<std::int64_t>(*number * scale);
}

/// Levels of "THRESHOLD:BATCH ...", whose thresholds are in tokens, in the order of these.
train::BatchSteps steps_of(std::string text, std::int64_t sequence_length) {
  std::ranges::replace(text, ',', ' ');
  train::BatchSteps steps;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t colon = word.find(':');
    TRIREME_CHECK(colon != std::string::npos, ConfigError,
                  "--step-batch-size-schedule: '{}' is not TOKENS:BATCH, such as 250B:1536", word);
    steps.levels.push_back(
        {scaled_number(word.substr(0, colon)) / sequence_length, scaled_number(word.substr(colon + 1))});
  }
  std::ranges::stable_sort(steps.levels, {}, &train::BatchLevel::begin);
  return steps;
}

}  // namespace

void BatchOptions::declare(Options& options, RunKind kind) {
  options.add("seq-length", &sequence_length, "N", "Tokens of a sample; default the model's positions.", countable());
  options.add("micro-batch-size", &micro_batch_size, "N", "Samples that one rank works on at a time.", countable());
  options.add("global-batch-size", &global_batch_size, "N",
              "Samples of an update; default one micro-batch a data rank.", countable());
  options.add_flag(
      "variable-seq-lengths", &variable_lengths,
      "For samples with padding, those of tasks and of a BERT: a micro-batch ends with its longest sample, "
      "rounded up to a multiple of 8 that the grid can divide. The run stays the same.");
  if (kind == RunKind::task) return;
  options.add("micro-batches", &micro_batches, "N",
              "Instead of --global-batch-size: micro-batches of an update on each data rank.", countable());
  options.add("rampup-batch-size", &ramp_up_text, "START INCREMENT SAMPLES",
              "With --train-samples: begin with batches of START and add INCREMENT at equal distances until the global "
              "batch is reached at sample number SAMPLES.");
  options.add("step-batch-size-schedule", &steps_text, "'TOKENS:BATCH ...'",
              "With --train-samples, instead of --global-batch-size: batches of BATCH samples once TOKENS tokens are "
              "consumed, first 0, as '0:768 250B:1536 500B:3072'. K, M, B and T are thousands to trillions.");
  options.add_flag("decrease-batch-size-if-needed", &decrease,
                   "Round batches down to a multiple of micro-batch size x data ranks, instead of an error.");
  options.add_choice("loss-average", &loss_average,
                     {{"tokens", train::LossAverage::tokens}, {"micro-batch", train::LossAverage::micro_batch}},
                     "The loss is the mean over all tokens of the global batch that count, or, as in Megatron-LM, the "
                     "mean of the micro-batches' means.");
  options.add(
      "train-iters", &train_iterations, "N",
      "Iterations of the whole run, earlier attempts included; 0 with --save writes the initial weights as step 0.",
      update_count(0));
  options.add("train-samples", &train_samples, "N",
              "Samples of the whole run, instead of --train-iters; an incomplete last batch is left out.",
              update_count(1));
}

void BatchOptions::settle(int data_ranks, Problems& problems) {
  const bool in_steps = !steps_text.empty();
  problems.expect(!in_steps || !global_batch_size,
                  "--step-batch-size-schedule and --global-batch-size exclude each other");
  problems.expect(!in_steps || !micro_batches, "--step-batch-size-schedule and --micro-batches exclude each other");
  problems.expect(!micro_batches || !global_batch_size, "--micro-batches and --global-batch-size exclude each other");
  if (!global_batch_size) {
    const std::int64_t samples = micro_batch_size * micro_batches.value_or(1);  // both are countable
    const auto most = static_cast<std::int64_t>(countable().max);
    problems.expect(
        samples <= most / data_ranks,
        fmt::format("--micro-batches {} of --micro-batch-size {} on {} data ranks are more than {} samples; "
                    "give fewer",
                    micro_batches.value_or(1), micro_batch_size, data_ranks, most));
    global_batch_size = std::min(samples, most / data_ranks) * data_ranks;
  }
  problems.expect(has_length(), "either --train-iters or --train-samples must be given");
  problems.expect(ramp_up_text.empty() || train_samples,
                  "--rampup-batch-size needs --train-samples instead of --train-iters");
  problems.expect(!in_steps || train_samples,
                  "--step-batch-size-schedule needs --train-samples instead of --train-iters");
  problems.expect(!in_steps || ramp_up_text.empty(),
                  "--step-batch-size-schedule and --rampup-batch-size exclude each other");
  problems.attempt([&] {
    if (!ramp_up_text.empty()) ramp_up = ramp_up_of(ramp_up_text);
    if (in_steps && sequence_length) {
      train::BatchSteps steps = steps_of(steps_text, *sequence_length);
      for (const train::BatchLevel& level : steps.levels) {
        global_batch_size = &level == steps.levels.data() ? level.size : std::max(*global_batch_size, level.size);
      }
      ramp_up = std::move(steps);
    }
    batches(data_ranks);
  });
}

train::BatchSchedule BatchOptions::batches(int data_ranks) const {
  return {*global_batch_size, ramp_up, decrease, micro_batch_size, data_ranks};
}

std::int64_t BatchOptions::iterations(const train::Progress& done, int data_ranks) const {
  if (train_iterations) return *train_iterations;
  return done.iteration + batches(data_ranks).iterations(done.consumed_samples, *train_samples);
}

}  // namespace trireme::app
