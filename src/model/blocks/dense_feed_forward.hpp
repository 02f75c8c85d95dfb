#pragma once

#include "src/model/blocks/feed_forward.hpp"

namespace trireme::model {

/// y = activation(x W_fc^T + b_fc) W_proj^T; W_fc column-parallel, W_proj row-parallel.
class DenseFeedForward final : public FeedForward {
 public:
  /// Adds fc.weight [f, hidden], fc.bias [f], proj.weight [hidden, f] and proj.bias [hidden].
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix);
  DenseFeedForward(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                   const std::string& prefix, Activation activation);

  std::unique_ptr<FeedForward::Saved> make_saved(const LayerShape& shape, bool selective, Arena& arena) const override;
  std::unique_ptr<FeedForward::Gradients> make_gradients(const LayerShape& shape, Arena& arena) const override;
  void forward(const LayerShape& shape, ConstTensorView x, FeedForward::Saved& saved, TensorView y) const override;
  /// Where `activated` is recomputed, the projection's weight gets its gradient here even if the others come later.
  void backward_input(const LayerShape& shape, const FeedForward::Saved& saved, FeedForward::Gradients& gradients,
                      TensorView dx, parallel::WeightGradient weights) const override;
  void backward_weight(const LayerShape& shape, const FeedForward::Saved& saved,
                       const FeedForward::Gradients& gradients) const override;
  void keep_for_weights(const FeedForward::Saved& saved, FeedForward::Gradients& gradients,
                        TensorView unread) const override;

 private:
  /// [s b, f_local] both; selective recomputation leaves `activated` empty.
  struct Saved final : FeedForward::Saved {
    TensorView pre_activation, activated;
  };
  struct Gradients final : FeedForward::Gradients {
    TensorView pre_activation;
  };

  std::int64_t columns_;  // f_local
  parallel::ColumnParallelLinear expansion_;
  parallel::RowParallelLinear projection_;
  Activation activation_;
};

}  // namespace trireme::model
