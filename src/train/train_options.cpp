#include "src/train/train_options.hpp"

#include <fmt/ranges.h>

namespace trireme::train {
namespace {

constexpr Choice<LossAverage> loss_average_names[] = {{"tokens", LossAverage::tokens},
                                                      {"micro-batch", LossAverage::micro_batch}};

}  // namespace

Attributes attributes_of(const TrainOptions& options) {
  Attributes attributes;
  attributes.put("training.global-batch-size", options.global_batch_size);
  if (options.ramp_up) {
    const BatchRampUp& ramp = *options.ramp_up;
    attributes.put("training.rampup-batch-size", fmt::format("{} {} {}", ramp.start, ramp.increment, ramp.samples));
  }
  attributes.put("training.loss-average", options.loss_average, loss_average_names);
  attributes.put_shortest("training.clip-grad", options.clip_grad);
  if (!options.guards.check_for_nan) attributes.put("training.no-check-for-nan-in-loss-and-grad", "true");
  if (options.guards.spiky_loss_factor > 0) {
    attributes.put_shortest("training.spiky-loss-factor", options.guards.spiky_loss_factor);
    if (options.guards.skip_spiky_loss) attributes.put("training.skip-spiky-loss", "true");
  }
  if (!options.guards.iterations_to_skip.empty()) {
    attributes.put("training.iterations-to-skip", fmt::format("{}", fmt::join(options.guards.iterations_to_skip, " ")));
  }
  attributes.merge(attributes_of(options.lr_schedule));
  attributes.merge(attributes_of(options.optimizer));
  attributes.merge(attributes_of(options.loss_scale));
  return attributes;
}

}  // namespace trireme::train
