#include "src/optim/weight_decay_ramp.hpp"

#include <cmath>
#include <numbers>

#include "src/base/check.hpp"

namespace trireme::optim {
namespace {

constexpr Choice<WeightDecayStyle> style_names[] = {{"linear", WeightDecayStyle::linear},
                                                    {"cosine", WeightDecayStyle::cosine}};

}  // namespace

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
  attributes.put("training.weight-decay-incr-style", ramp.style, style_names);
  attributes.put_shortest("training.start-weight-decay", ramp.start);
  attributes.put_shortest("training.end-weight-decay", ramp.end);
  attributes.put(by_samples ? "training.train-samples" : "training.train-iters", ramp.length);
  return attributes;
}

std::optional<WeightDecayRamp> weight_decay_ramp_from(const Attributes& attributes) {
  if (!attributes.contains("training.weight-decay-incr-style")) return std::nullopt;
  const char* const length =
      attributes.contains("training.train-samples") ? "training.train-samples" : "training.train-iters";
  return WeightDecayRamp{attributes.get("training.weight-decay-incr-style", style_names),
                         attributes.get<double>("training.start-weight-decay"),
                         attributes.get<double>("training.end-weight-decay"), attributes.get(length, std::int64_t{1})};
}

}  // namespace trireme::optim
