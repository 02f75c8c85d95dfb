#include "src/train/train_record.hpp"

#include <algorithm>

namespace trireme::train {

LayerLoad summary_of(const std::vector<LayerLoad>& layers) {
  LayerLoad summary{.layer = -1, .entropy = 1};
  const auto count = static_cast<double>(layers.size());
  for (const LayerLoad& layer : layers) {
    summary.balance_loss += layer.balance_loss / count;
    summary.z_loss += layer.z_loss / count;
    summary.router_entropy += layer.router_entropy / count;
    summary.dropped += layer.dropped / count;
    if (layer.max_load > summary.max_load) summary.layer = layer.layer;
    summary.max_load = std::max(summary.max_load, layer.max_load);
    summary.entropy = std::min(summary.entropy, layer.entropy);
  }
  return summary;
}

std::string text_of(const RewindRecord& record) {
  const Rewind& rewind = record.rewind;
  return fmt::format(
      "high losses from iteration {} on, the last {:.5g} against a mean of {:.5g} before, with a standard deviation of "
      "{:.5g}: after iteration {} the run goes back to the state of iteration {}, and leaves out the samples {} to {}",
      record.first_high, record.loss, record.before.mean, record.before.deviation, rewind.from, rewind.to,
      rewind.first_sample, rewind.end_sample - 1);
}

}  // namespace trireme::train
