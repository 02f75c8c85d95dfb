#include "src/model/blocks/feed_forward.hpp"

namespace trireme::model {
namespace {

using parallel::WeightGradient;

/// y = act(x W_fc^T + b_fc) W_proj^T; W_fc is column-parallel, W_proj row-parallel. Either `act` is an elementwise
/// activation, or the columns are halves, gate and up, and act = silu(gate) up (SwiGLU: Shazeer 2020,
/// arXiv:2002.05202). silu(gate) up is cheap: backward always recomputes it.
class DenseFeedForward final : public FeedForward {
 public:
  DenseFeedForward(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                   const std::string& prefix, const ModelConfig& config)
      : FeedForward(context, parameters, prefix),
        columns_(parameters.at(prefix + ".proj.weight").storage[1]),
        expansion_(context, parameters.at(prefix + ".fc.weight"), parameters.find(prefix + ".fc.bias")),
        projection_(context, parameters.at(prefix + ".proj.weight")),
        gated_(config.gated),
        activation_(config.activation) {}

  std::unique_ptr<FeedForward::Saved> make_saved(const LayerShape& shape, bool selective, Arena& arena) const override {
    auto saved = std::make_unique<Saved>();
    saved->expanded = shape.allocate_rows(arena, expanded_columns());
    if (!gated_ && !selective) saved->activated = shape.allocate_rows(arena, columns_);
    return saved;
  }

  std::unique_ptr<FeedForward::Gradients> make_gradients(const LayerShape& shape, Arena& arena) const override {
    auto gradients = std::make_unique<Gradients>();
    gradients->output = shape.allocate_residual(arena);
    gradients->expanded = shape.allocate_rows(arena, expanded_columns());
    return gradients;
  }

  void forward(const LayerShape& shape, ConstTensorView x, FeedForward::Saved& of_layer, TensorView y) const override {
    auto& saved = static_cast<Saved&>(of_layer);
    const ArenaScope scope(context_.workspace);
    saved.input = x;
    if (gated_) {
      expansion_.forward(shape.as_rows(x), Activation::none, {}, saved.expanded);
      if (y) projection_.forward(activate(shape, saved), shape.as_rows(y));
      return;
    }
    const TensorView activated = saved.activated ? saved.activated : shape.allocate_rows(context_.workspace, columns_);
    expansion_.forward(shape.as_rows(x), activation_, saved.expanded, activated);
    if (y) projection_.forward(activated, shape.as_rows(y));
  }

  void backward_input(const LayerShape& shape, const FeedForward::Saved& of_layer,
                      FeedForward::Gradients& gradients_of_layer, TensorView dx,
                      WeightGradient weights) const override {
    const auto& saved = static_cast<const Saved&>(of_layer);
    const auto& gradients = static_cast<const Gradients&>(gradients_of_layer);
    const ConstTensorView doutput = shape.as_rows(gradients.output);
    {
      const ArenaScope scope(context_.workspace);
      const TensorView activated = saved.activated ? saved.activated : activate(shape, saved);
      if (gated_) {
        const TensorView dactivated = shape.allocate_rows(context_.workspace, columns_);
        projection_.backward_input(doutput, activated, Activation::none, {}, dactivated, WeightGradient::now);
        context_.backend.elementwise().glu_backward(context_.stream(), dactivated, saved.expanded, gradients.expanded);
      } else {
        projection_.backward_input(doutput, activated, activation_, saved.expanded, gradients.expanded,
                                   saved.activated ? weights : WeightGradient::now);
      }
    }
    expansion_.backward_input(gradients.expanded, shape.as_rows(saved.input), shape.as_rows(dx), weights);
  }

  void backward_weight(const LayerShape& shape, const FeedForward::Saved& of_layer,
                       const FeedForward::Gradients& gradients_of_layer) const override {
    const auto& saved = static_cast<const Saved&>(of_layer);
    const auto& gradients = static_cast<const Gradients&>(gradients_of_layer);
    if (saved.activated) projection_.backward_weight(shape.as_rows(gradients.output), saved.activated);
    expansion_.backward_weight(gradients.expanded, shape.as_rows(saved.input));
  }

  void keep_for_weights(const FeedForward::Saved& of_layer, FeedForward::Gradients& gradients_of_layer,
                        TensorView unread) const override {
    const auto& saved = static_cast<const Saved&>(of_layer);
    auto& gradients = static_cast<Gradients&>(gradients_of_layer);
    if (saved.activated) move(gradients.output, unread);
    move(gradients.expanded, saved.expanded);
  }

 private:
  struct Saved final : FeedForward::Saved {
    TensorView expanded;   ///< x W_fc^T + b_fc: [s b, f_local], gated [s b, 2 f_local]
    TensorView activated;  ///< [s b, f_local]; empty where backward recomputes it
  };
  struct Gradients final : FeedForward::Gradients {
    TensorView expanded;
  };

  std::int64_t expanded_columns() const { return gated_ ? 2 * columns_ : columns_; }
  /// Computes act(expanded), [s b, f_local] in the work space.
  TensorView activate(const LayerShape& shape, const Saved& saved) const {
    const TensorView result = shape.allocate_rows(context_.workspace, columns_);
    ElementwiseKernels& kernels = context_.backend.elementwise();
    if (gated_) {
      kernels.glu(context_.stream(), saved.expanded, result);
    } else {
      kernels.activate(context_.stream(), activation_, saved.expanded, result);
    }
    return result;
  }
  /// Copies `gradient` to the tensor `to` of its size and redirects it there.
  void move(TensorView& gradient, TensorView to) const {
    context_.backend.elementwise().convert(context_.stream(), gradient, to);
    gradient = to;
  }

  std::int64_t columns_;  // f_local
  parallel::ColumnParallelLinear expansion_;
  parallel::RowParallelLinear projection_;
  bool gated_;
  Activation activation_;
};

}  // namespace

void FeedForward::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix) {
  const std::int64_t f = config.ffn_hidden, h = config.hidden;
  // Gate and up are each split over the tensor ranks.
  list.column_parallel(prefix + ".fc", config.linear_bias, config.gated ? Shape{2, f, h} : Shape{f, h},
                       config.gated ? 1 : 0);
  list.row_parallel(prefix + ".proj", config.linear_bias, h, f);
}

std::unique_ptr<FeedForward> FeedForward::make(const parallel::TensorContext& context,
                                               const parallel::ParameterBuffer& parameters, const std::string& prefix,
                                               const ModelConfig& config) {
  return std::make_unique<DenseFeedForward>(context, parameters, prefix, config);
}

}  // namespace trireme::model
