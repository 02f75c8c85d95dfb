#include "src/optim/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/base/check.hpp"

namespace trireme::optim {
namespace {

constexpr Choice<WeightDecayStyle> weight_decay_styles[] = {{"linear", WeightDecayStyle::linear},
                                                            {"cosine", WeightDecayStyle::cosine}};

double wsd_factor(WsdDecayStyle style, double ratio) {
  if (style == WsdDecayStyle::linear) return 1 - ratio;
  if (style == WsdDecayStyle::cosine) return 0.5 * (1 + std::cos(std::numbers::pi * ratio));
  return style == WsdDecayStyle::exponential ? 2 * std::pow(0.5, ratio) - 1 : 1 - std::sqrt(ratio);
}

}  // namespace

void LrSchedule::validate() const {
  TRIREME_CHECK(std::isfinite(maximum) && maximum >= 0, ConfigError, "<lr> {} must be a number of at least 0", maximum);
  TRIREME_CHECK(std::isfinite(minimum) && minimum >= 0 && minimum <= maximum, ConfigError,
                "<min_lr> {} must be from 0 to <lr> {}", minimum, maximum);
  TRIREME_CHECK(std::isfinite(initial) && initial >= 0 && initial <= maximum, ConfigError,
                "<lr_warmup_init> {} must be from 0 to <lr> {}", initial, maximum);
  const char* const warmup_field = by_samples ? "<lr_warmup_samples>" : "<lr_warmup_iters>";
  TRIREME_CHECK(warmup >= 0, ConfigError, "{} {} must not be negative", warmup_field, warmup);
  TRIREME_CHECK(style == LrDecayStyle::constant || warmup < static_cast<double>(decay), ConfigError,
                "{} {} must be below {} {} (default {})", warmup_field, warmup,
                by_samples ? "<lr_decay_samples>" : "<lr_decay_iters>", decay,
                by_samples ? "<train_samples>" : "<train_iters>");
  TRIREME_CHECK(
      style != LrDecayStyle::inverse_square_root || !by_samples || warmup > 0, ConfigError,
      "<lr_decay_style> inverse-square-root falls with the root of the samples over those of the warm-up: give "
      "<lr_warmup_samples> of at least 1");
  TRIREME_CHECK(style != LrDecayStyle::wsd || (wsd_decay >= 1 && static_cast<double>(decay - wsd_decay) >= warmup),
                ConfigError, "{} {} must be at least 1, and begin after the warm-up: at most {} {} less {} {}",
                by_samples ? "<lr_wsd_decay_samples>" : "<lr_wsd_decay_iters>", wsd_decay,
                by_samples ? "<lr_decay_samples>" : "<lr_decay_iters>", decay, warmup_field, warmup);
}

double LrSchedule::at(std::int64_t progress) const {
  // Progress enters by quotients alone, so that updates and samples of one batch size give the same bits.
  const auto k = static_cast<double>(progress);
  const double w = warmup;
  if (w > 0 && k <= w) return initial + (maximum - initial) * (k / w);
  if (style == LrDecayStyle::constant) return maximum;
  if (progress > decay) return minimum;
  if (style == LrDecayStyle::inverse_square_root) {
    return std::max(minimum, maximum * std::sqrt(std::max(w, 1.0) / k));
  }
  if (style == LrDecayStyle::wsd) {
    const std::int64_t decayed = progress - (decay - wsd_decay);
    if (decayed <= 0) return maximum;
    const double factor = wsd_factor(wsd_style, static_cast<double>(decayed) / static_cast<double>(wsd_decay));
    return minimum + (maximum - minimum) * factor;
  }
  const double ratio = (k - w) / (static_cast<double>(decay) - w);
  const double factor = style == LrDecayStyle::linear ? 1 - ratio : 0.5 * (1 + std::cos(std::numbers::pi * ratio));
  return minimum + (maximum - minimum) * factor;
}

Attributes attributes_of(const LrSchedule& schedule) {
  const std::string unit = schedule.by_samples ? "samples" : "iters";
  Attributes attributes;
  attributes.put_shortest("training.lr", schedule.maximum);
  attributes.put_shortest("training.min-lr", schedule.minimum);
  attributes.put("training.lr-decay-style", schedule.style, lr_decay_styles);
  attributes.put_shortest("training.lr-warmup-" + unit, schedule.warmup);
  if (schedule.initial != 0) attributes.put_shortest("training.lr-warmup-init", schedule.initial);
  attributes.put("training.lr-decay-" + unit, schedule.decay);
  if (schedule.style == LrDecayStyle::wsd) {
    attributes.put("training.lr-wsd-decay-style", schedule.wsd_style, wsd_decay_styles);
    attributes.put("training.lr-wsd-decay-" + unit, schedule.wsd_decay);
  }
  return attributes;
}

LrSchedule lr_schedule_from(const Attributes& attributes) {
  LrSchedule schedule;
  schedule.by_samples = attributes.contains("training.lr-decay-samples");
  const std::string unit = schedule.by_samples ? "samples" : "iters";
  schedule.style = attributes.get("training.lr-decay-style", lr_decay_styles);
  schedule.maximum = attributes.get<double>("training.lr");
  schedule.minimum = attributes.get<double>("training.min-lr");
  schedule.warmup = attributes.get<double>("training.lr-warmup-" + unit);
  schedule.decay = attributes.get<std::int64_t>("training.lr-decay-" + unit);
  if (attributes.contains("training.lr-warmup-init")) {
    schedule.initial = attributes.get<double>("training.lr-warmup-init");
  }
  if (schedule.style == LrDecayStyle::wsd) {
    schedule.wsd_style = attributes.get("training.lr-wsd-decay-style", wsd_decay_styles);
    schedule.wsd_decay = attributes.get<std::int64_t>("training.lr-wsd-decay-" + unit);
  }
  try {
    schedule.validate();
  } catch (const ConfigError& error) {
    attributes.fail(fmt::format("the learning rate among its attributes is invalid: {}", error.what()));
  }
  return schedule;
}

void WeightDecayRamp::validate() const {
  TRIREME_CHECK(start >= 0 && end >= start && std::isfinite(end), ConfigError,
                "<start_weight_decay> {} must be at least 0 and at most <end_weight_decay> {}", start, end);
}

double WeightDecayRamp::at(std::int64_t progress) const {
  if (progress > length) return end;
  const double ratio = static_cast<double>(progress) / static_cast<double>(length);
  const double factor =
      style == WeightDecayStyle::linear ? ratio : 0.5 * (1 + std::cos(std::numbers::pi * (1 - ratio)));
  return start + (end - start) * factor;
}

Attributes attributes_of(const WeightDecayRamp& ramp, bool by_samples) {
  Attributes attributes;
  attributes.put("training.weight-decay-incr-style", ramp.style, weight_decay_styles);
  attributes.put_shortest("training.start-weight-decay", ramp.start);
  attributes.put_shortest("training.end-weight-decay", ramp.end);
  attributes.put(by_samples ? "training.train-samples" : "training.train-iters", ramp.length);
  return attributes;
}

std::optional<WeightDecayRamp> weight_decay_ramp_from(const Attributes& attributes) {
  if (!attributes.contains("training.weight-decay-incr-style")) return std::nullopt;
  const char* const length =
      attributes.contains("training.train-samples") ? "training.train-samples" : "training.train-iters";
  return WeightDecayRamp{attributes.get("training.weight-decay-incr-style", weight_decay_styles),
                         attributes.get<double>("training.start-weight-decay"),
                         attributes.get<double>("training.end-weight-decay"), attributes.get(length, std::int64_t{1})};
}

}  // namespace trireme::optim
