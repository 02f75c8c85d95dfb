#include "src/model/blocks/feed_forward.hpp"

#include "src/model/blocks/dense_feed_forward.hpp"
#include "src/model/blocks/gated_feed_forward.hpp"

namespace trireme::model {

void FeedForward::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix) {
  (config.gated ? GatedFeedForward::declare : DenseFeedForward::declare)(list, config, prefix);
}

std::unique_ptr<FeedForward> FeedForward::make(const parallel::TensorContext& context,
                                               const parallel::ParameterBuffer& parameters, const std::string& prefix,
                                               const ModelConfig& config) {
  if (config.gated) return std::make_unique<GatedFeedForward>(context, parameters, prefix);
  return std::make_unique<DenseFeedForward>(context, parameters, prefix, config.activation);
}

void FeedForward::move(TensorView& gradient, TensorView to) const {
  context_.backend.elementwise().convert(context_.stream(), gradient, to);
  gradient = to;
}

}  // namespace trireme::model
