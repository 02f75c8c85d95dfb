#pragma once

#include "src/model/blocks/feed_forward.hpp"

namespace trireme::model {

/// y = (silu(gate) up) W_proj^T, with gate and up the halves of x W_fc^T + b_fc (SwiGLU: Shazeer 2020,
/// arXiv:2002.05202). Each half of W_fc is split over the tensor ranks; W_proj is row-parallel. The activation is
/// cheap: only the halves are kept, and backward recomputes it.
class GatedFeedForward final : public FeedForward {
 public:
  /// Adds fc.weight [2, f, hidden] for gate and up, fc.bias [2, f], proj.weight [hidden, f] and proj.bias [hidden].
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix);
  GatedFeedForward(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                   const std::string& prefix);

  std::unique_ptr<FeedForward::Saved> make_saved(const LayerShape& shape, bool selective, Arena& arena) const override;
  std::unique_ptr<FeedForward::Gradients> make_gradients(const LayerShape& shape, Arena& arena) const override;
  void forward(const LayerShape& shape, ConstTensorView x, FeedForward::Saved& saved, TensorView y) const override;
  /// The projection's weight gets its gradient here even if the others come later.
  void backward_input(const LayerShape& shape, const FeedForward::Saved& saved, FeedForward::Gradients& gradients,
                      TensorView dx, parallel::WeightGradient weights) const override;
  void backward_weight(const LayerShape& shape, const FeedForward::Saved& saved,
                       const FeedForward::Gradients& gradients) const override;
  void keep_for_weights(const FeedForward::Saved& saved, FeedForward::Gradients& gradients,
                        TensorView unread) const override;

 private:
  struct Saved final : FeedForward::Saved {
    TensorView gate_up;  ///< [s b, 2 f_local]
  };
  struct Gradients final : FeedForward::Gradients {
    TensorView gate_up;
  };
  /// silu(gate) up, [s b, f_local] in the work space.
  TensorView activate(const LayerShape& shape, const Saved& saved) const;

  std::int64_t columns_;  // f_local
  parallel::ColumnParallelLinear expansion_;
  parallel::RowParallelLinear projection_;
};

}  // namespace trireme::model
