#include "src/app/run_config/batch_options.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "src/base/parse_number.hpp"

namespace trireme::app {
namespace {

/// Reads the levels of "THRESHOLD:BATCH ...", with thresholds in tokens, and sorts them by threshold.
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

std::int64_t scaled_number(const std::string& text) {
  constexpr std::pair<char, double> units[] = {{'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'T', 1e12}};
  double scale = 1;
  std::string_view digits = text;
  for (const auto& [letter, value] : units) {
    if (text.empty() || std::toupper(static_cast<unsigned char>(text.back())) != letter) continue;
    scale = value;
    digits.remove_suffix(1);
    break;
  }
  const auto number = parse_number<double>(digits);
  constexpr double limit = 1e18;
  TRIREME_CHECK(number && *number >= 0 && *number * scale <= limit, ConfigError,
                "'{}' is not a number from 0 to 1e18, with or without K, M, B or T", text);
  const double scaled = *number * scale, whole = std::round(scaled);
  TRIREME_CHECK(std::abs(scaled - whole) <= 1e-9 * whole, ConfigError, "'{}' is not a whole number", text);
  return static_cast<std::int64_t>(whole);
}

void BatchOptions::declare(Options& options, RunKind kind) {
  options.add("seq-length", &sequence_length, "N", "Tokens of a sample; default the model's positions.", countable());
  options.add("micro-batch-size", &micro_batch_size, "N", "Samples that one rank processes at a time.", countable());
  options.add("global-batch-size", &global_batch_size, "N",
              "Samples of an update; default one micro-batch per data rank.", countable());
  options.add_flag("variable-seq-lengths", &variable_lengths,
                   "For samples with padding, those of tasks and of a BERT: cut a micro-batch to its longest sample, "
                   "rounded up to a multiple of 8 that the grid can divide. The results stay the same, to "
                   "rounding; losses, capacities and biases of experts exclude it.");
  if (kind == RunKind::task) return;
  options.add("micro-batches", &micro_batches, "N",
              "Micro-batches of an update on each data rank. Any two of --micro-batch-size, --micro-batches and "
              "--global-batch-size determine the third.",
              countable());
  options.add(
      "rampup-batch-size", &ramp_up_numbers, "START INCREMENT SAMPLES",
      "With --train-samples: begin with batches of START samples and add INCREMENT in equal steps until the global "
      "batch is reached after SAMPLES samples.");
  options.add(
      "step-batch-size-schedule", &steps_text, "'TOKENS:BATCH ...'",
      "With --train-samples, instead of --global-batch-size: batches of BATCH samples from TOKENS consumed tokens on, "
      "the first from 0, as in '0:768 250B:1536 500B:3072'. K, M, B and T are thousands to trillions.");
  options.add_flag("decrease-batch-size-if-needed", &decrease,
                   "Round batches down to a multiple of micro-batch size x data ranks instead of failing.");
  options.add_choice(
      "loss-average", &loss_average,
      {{"tokens", train::LossAverage::tokens}, {"micro-batch", train::LossAverage::micro_batch}},
      "The loss is the mean over all unmasked tokens of the global batch, or, as in Megatron-LM, the mean of the "
      "micro-batches' means.");
  options.add(
      "train-iters", &train_iterations, "N",
      "Iterations of the entire run, earlier attempts included; 0 with --save writes the initial weights as step 0.",
      update_count(0));
  options.add("train-samples", &train_samples, "N",
              "Samples of the entire run, instead of --train-iters; drops an incomplete last batch.", update_count(1));
}

void BatchOptions::settle(const Options& options, int data_ranks, Problems& problems) {
  const bool in_steps = !steps_text.empty();
  problems.exclude(!in_steps || !global_batch_size, "step-batch-size-schedule", "global-batch-size");
  problems.exclude(!in_steps || !micro_batches, "step-batch-size-schedule", "micro-batches");
  bool is_product = true;
  if (global_batch_size && micro_batches) {
    const std::int64_t parts = *micro_batches * data_ranks;
    if (options.given("micro-batch-size")) {
      is_product = *global_batch_size % parts == 0 && *global_batch_size / parts == micro_batch_size;
      problems.expect(is_product,
                      fmt::format("--global-batch-size {} is not --micro-batch-size {} x --micro-batches {} x {} data "
                                  "ranks: leave one of the three out",
                                  *global_batch_size, micro_batch_size, *micro_batches, data_ranks));
    } else {
      is_product = *global_batch_size % parts == 0;
      problems.expect(is_product,
                      fmt::format("--global-batch-size {} is not a multiple of --micro-batches {} x {} data ranks: "
                                  "choose a multiple of {}, or leave --micro-batches out",
                                  *global_batch_size, *micro_batches, data_ranks, parts));
      micro_batch_size = std::max<std::int64_t>(*global_batch_size / parts, 1);
    }
  }
  if (!global_batch_size) {
    const std::int64_t samples = micro_batch_size * micro_batches.value_or(1);  // both are countable
    const auto most = static_cast<std::int64_t>(countable().max);
    problems.expect(
        samples <= most / data_ranks,
        fmt::format("--micro-batches {} of --micro-batch-size {} on {} data ranks are more than {} samples; give fewer",
                    micro_batches.value_or(1), micro_batch_size, data_ranks, most));
    global_batch_size = std::min(samples, most / data_ranks) * data_ranks;
  }
  problems.exclude(!train_iterations || !train_samples, "train-iters", "train-samples");
  problems.expect(train_iterations || train_samples, "either --train-iters or --train-samples must be given");
  problems.need(options, {"rampup-batch-size", "step-batch-size-schedule"}, train_samples.has_value(),
                "--train-samples instead of --train-iters");
  problems.exclude(!in_steps || ramp_up_numbers.empty(), "step-batch-size-schedule", "rampup-batch-size");
  problems.attempt([&] {
    if (!ramp_up_numbers.empty()) {
      TRIREME_CHECK(ramp_up_numbers.size() == 3, ConfigError,
                    "--rampup-batch-size {}: three numbers are needed: first batch, increment, samples",
                    fmt::join(ramp_up_numbers, " "));
      ramp_up = train::BatchRampUp{ramp_up_numbers[0], ramp_up_numbers[1], ramp_up_numbers[2]};
    }
    if (in_steps && sequence_length) {
      train::BatchSteps steps = steps_of(steps_text, *sequence_length);
      for (const train::BatchLevel& level : steps.levels) {
        global_batch_size = &level == steps.levels.data() ? level.size : std::max(*global_batch_size, level.size);
      }
      ramp_up = std::move(steps);
    }
    if (is_product) batches(data_ranks);
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
