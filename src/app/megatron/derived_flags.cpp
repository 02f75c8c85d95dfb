#include "src/app/megatron/derived_flags.hpp"

#include <fmt/ranges.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <sstream>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"
#include "src/train/batch_schedule.hpp"

namespace trireme::app::megatron {
namespace {

using Given = std::function<std::string(const std::string&)>;

double number(std::string_view name, const std::string& value) {
  const auto result = parse_number<double>(value);
  TRIREME_CHECK(result && *result >= 0 && *result < 1e18, ConfigError,
                "{} is not a number from 0 on; nearest: give one",
                value.empty() ? fmt::format("the value of {}", name) : shortened(value));
  return *result;
}

/// Returns the positive number that `option` has.
double number_of(const Given& given, const std::string& option) {
  const double result = number(option, given(option));
  TRIREME_CHECK(result >= 1, ConfigError, "{} {} is below 1; nearest: 1", option, given(option));
  return result;
}

std::string whole(double value) { return fmt::format("{}", static_cast<std::int64_t>(value)); }

/// Returns the growth that --rampup-batch-size START INCREMENT SAMPLES describes, if any.
std::optional<train::BatchGrowth> growth_of(const std::string& words) {
  if (words.empty()) return {};
  std::istringstream stream(words);
  train::BatchRampUp ramp;
  TRIREME_CHECK(stream >> ramp.start >> ramp.increment >> ramp.samples, ConfigError,
                "--rampup-batch-size {} is not START INCREMENT SAMPLES", shortened(words));
  return ramp;
}

DerivedWords stop_at(double tokens, const Given& given) {
  TRIREME_CHECK(given("--step-batch-size-schedule").empty(), ConfigError,
                "with a batch that grows by tokens the last iteration is unknown; nearest: --train-samples");
  TRIREME_CHECK(given("--exit-interval").empty(), ConfigError,
                "--exit-interval ends the run, too; nearest: one of them");
  const double batch = number_of(given, "--global-batch-size");
  const train::BatchSchedule schedule(static_cast<std::int64_t>(batch), growth_of(given("--rampup-batch-size")), false,
                                      1, 1);
  // The iteration after the last complete one reaches sample `end`, unless that one did.
  const auto end = static_cast<std::int64_t>(std::ceil(tokens / number_of(given, "--seq-length")));
  const std::int64_t complete = schedule.iterations(0, end), last = complete + (schedule.samples(0, complete) < end);
  const bool has_samples = !given("--train-samples").empty();
  const auto limit = static_cast<std::int64_t>(number_of(given, has_samples ? "--train-samples" : "--train-iters"));
  const std::int64_t all = has_samples ? schedule.iterations(0, limit) : limit;
  if (last >= all) return {{}, "the run ends before"};
  TRIREME_CHECK(last >= 1, ConfigError, "no iteration is left; nearest: leave it out");
  return {{"--exit-interval", std::to_string(last)}, {}};
}

DerivedWords divide_layers(const std::string& method, const Given& given) {
  TRIREME_CHECK(method == "type:transformer|embedding" || method == "type:embedding|transformer", ConfigError,
                "nearest: --pipeline-model-parallel-layout");
  const std::string size = given("--pipeline-model-parallel-size");
  const auto stages = size.empty() ? 1 : static_cast<std::int64_t>(number_of(given, "--pipeline-model-parallel-size"));
  if (stages == 1) return {{}, "there is one stage"};
  const auto parts = static_cast<std::int64_t>(number_of(given, "--num-layers")) + 2;
  TRIREME_CHECK(parts % stages == 0 && parts / stages > 1 && stages <= 10'000, ConfigError,
                "{} layers and two embeddings do not divide into {} stages; nearest: --pipeline-model-parallel-layout",
                parts - 2, stages);
  std::vector<std::int64_t> layers(static_cast<std::size_t>(stages), parts / stages);
  --layers.front();
  --layers.back();
  return {{"--pipeline-model-parallel-layout", fmt::format("{}", fmt::join(layers, ","))}, {}};
}

}  // namespace

bool is_derived(std::string_view name) {
  return name == "train-tokens" || name == "lr-decay-tokens" || name == "lr-warmup-tokens" ||
         name == "pp-partition-method";
}

DerivedWords derived_words(std::string_view name, const std::string& value, const Given& given) {
  if (name == "pp-partition-method") return divide_layers(value, given);
  const double tokens = number(name, value);
  if (name == "train-tokens") return stop_at(tokens, given);
  const std::string samples = whole(std::round(tokens / number_of(given, "--seq-length")));
  return {{name == "lr-decay-tokens" ? "--lr-decay-samples" : "--lr-warmup-samples", samples}, {}};
}

}  // namespace trireme::app::megatron
