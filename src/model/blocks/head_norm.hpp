#pragma once

#include "src/backend/kernels/attention.hpp"
#include "src/model/blocks/layer_shape.hpp"
#include "src/model/blocks/norm.hpp"

namespace trireme::model {

/// Normalisation of the channels of each head of queries or keys, before they rotate (Dehghani et al. 2023,
/// arXiv:2302.05442). All heads share one weight [d]. A rank's gradient of the weight is that of its heads.
class HeadNorm {
 public:
  /// Inputs of backward.
  struct Saved {
    TensorView heads;  ///< [s, b, heads, d] before the norm
    NormStatistics statistics;
  };

  /// Adds the norm `prefix` of all heads, of which each tensor rank has some.
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix);
  HeadNorm(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
           const std::string& prefix, const ModelConfig& config)
      : context_(context), norm_(context, parameters, prefix, config) {}

  Saved make_saved(const LayerShape& shape, std::int64_t heads, Arena& arena) const;
  /// x = norm(x), in place; overwrites `saved`.
  void forward(const HeadsShape& shape, const Heads& x, const Saved& saved) const;
  /// dx, the gradient of the result, becomes that of the input. Accumulates the gradients of weight and bias.
  void backward(const HeadsShape& shape, const Heads& dx, const Saved& saved) const;

 private:
  parallel::TensorContext context_;
  Norm norm_;
};

}  // namespace trireme::model
