#include "src/train/train_options.hpp"

#include <fmt/ranges.h>
#include "src/optim/grad_norm.hpp"

namespace trireme::train {
namespace {

constexpr Choice<LossAverage> loss_average_names[] = {{"tokens", LossAverage::tokens},
                                                      {"micro-batch", LossAverage::micro_batch}};

}  // namespace

Attributes attributes_of(const TrainOptions& options) {
  Attributes attributes;
  attributes.put("training.global-batch-size", options.global_batch_size);
  if (options.ramp_up) {
    if (const auto* const ramp = std::get_if<BatchRampUp>(&*options.ramp_up)) {
      attributes.put("training.rampup-batch-size",
                     fmt::format("{} {} {}", ramp->start, ramp->increment, ramp->samples));
    } else {
      std::string text;
      for (const BatchLevel& level : std::get<BatchSteps>(*options.ramp_up).levels) {
        text += fmt::format("{}{}:{}", text.empty() ? "" : " ", level.begin, level.size);
      }
      attributes.put("training.step-batch-size-schedule", text + " (in samples)");
    }
  }
  attributes.put("training.loss-average", options.loss_average, loss_average_names);
  const DocumentOptions& documents = options.documents;
  if (documents.reset_position_ids) attributes.put("training.reset-position-ids", true);
  if (documents.reset_attention_mask) attributes.put("training.reset-attention-mask", true);
  if (documents.eod_mask_loss) attributes.put("training.eod-mask-loss", true);
  attributes.put_shortest("training.clip-grad", options.clip_grad);
  if (!options.guards.check_for_nan) attributes.put("training.no-check-for-nan-in-loss-and-grad", "true");
  if (options.guards.spiky_loss_factor > 0) {
    attributes.put_shortest("training.spiky-loss-factor", options.guards.spiky_loss_factor);
    if (options.guards.skip_spiky_loss) attributes.put("training.skip-spiky-loss", "true");
  }
  if (!options.guards.iterations_to_skip.empty()) {
    attributes.put("training.iterations-to-skip", fmt::format("{}", fmt::join(options.guards.iterations_to_skip, " ")));
  }
  if (options.grad_norm_power != 2) {
    const bool is_infinite = options.grad_norm_power == optim::infinity_norm;
    attributes.put("training.grad-norm-type", is_infinite ? "inf" : std::to_string(options.grad_norm_power));
  }
  if (options.decoupled_rate) {
    attributes.put_shortest("training.decoupled-lr", options.decoupled_rate->maximum);
    attributes.put_shortest("training.decoupled-min-lr", options.decoupled_rate->minimum);
  }
  attributes.merge(attributes_of(options.lr_schedule));
  attributes.merge(attributes_of(options.optimizer));
  if (options.weight_decay_ramp) {
    attributes.merge(attributes_of(*options.weight_decay_ramp, options.lr_schedule.by_samples));
  }
  attributes.merge(attributes_of(options.loss_scale));
  return attributes;
}

std::optional<DecoupledRate> decoupled_rate_from(const Attributes& attributes) {
  if (!attributes.contains("training.decoupled-lr")) return std::nullopt;
  return DecoupledRate{attributes.get<double>("training.decoupled-lr"),
                       attributes.get<double>("training.decoupled-min-lr")};
}

}  // namespace trireme::train
