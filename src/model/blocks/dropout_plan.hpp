#pragma once

#include "src/backend/kernels/dropout.hpp"

namespace trireme::model {

/// Inputs of one micro-batch's dropout masks, for every layer and site. In evaluation both probabilities are 0.
struct DropoutPlan {
  double hidden = 0;
  double attention = 0;
  std::uint64_t seed = 0;
  const std::int64_t* samples = nullptr;  ///< device memory, [b]: numbers of the samples since the start of training
  Positions positions;                    ///< positions of this rank's rows of the residual stream

  /// `layer` counts over the full model from 0.
  Dropout at(int layer, DropoutSite site) const {
    const double probability = site == DropoutSite::attention_scores ? attention : hidden;
    if (probability == 0) return {};
    Dropout dropout(probability, seed, layer, site, samples);
    dropout.positions = positions;
    return dropout;
  }
};

}  // namespace trireme::model
