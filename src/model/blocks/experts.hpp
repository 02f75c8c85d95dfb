#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/model/blocks/feed_forward.hpp"
#include "src/model/blocks/recomputation.hpp"
#include "src/parallel/expert/token_dispatcher.hpp"

namespace trireme::model {

/// Load of the experts of one layer in the micro-batches since the last reading. On one rank of the tensor group: of
/// the tokens of this rank's sequences; summed over data ranks it is that of all tokens.
struct ExpertLoad {
  int layer = 0;
  std::vector<double> tokens;  ///< by expert of the model: tokens that it computed
  std::vector<double> chosen;  ///< likewise: tokens that chose it, also those beyond its capacity
  double dropped = 0;          ///< choices beyond the capacity
  double balance = 0;          ///< sum over micro-batches of the balance loss, without its coefficient
  double z = 0;                ///< likewise of the z-loss: mean over tokens of lse^2
  double entropy = 0;          ///< likewise of the router's entropy: mean over tokens of -sum p log p
};

/// Feed-forward block of experts (ExpertConfig): y[t] = sum over the chosen experts i of w[t, i] F_i(x[t]), F_i a block
/// like FeedForward without biases, w from the router (RouterProblem), plus a shared block of all tokens, if any. x, y
/// [s_local, b, h]. Each expert is split over the tensor ranks like a dense block; whole experts are divided over
/// TensorContext::expert_group (parallel::TokenDispatcher). With TensorContext::expert_splits that group also splits
/// each expert, and each tensor rank computes logits, and sends tokens, only for its own n = s b / t tokens. All of a
/// micro-batch's logits are gathered, so that every tensor rank chooses, drops and counts alike.
///
/// With RecomputedModules::experts only the input and the route are kept, and tokens travel once more in backward.
///
/// The rows R that this rank computes depend on the data: forward reads their number from the device. Balance losses
/// (Fedus et al. 2021, arXiv:2101.03961): E / (k T^2) sum over experts of counts x sums (ExpertKernels::route) over the
/// T tokens of a micro-batch, or the mean of that over its sequences. With BalanceLoss::global (Qiu et al. 2025,
/// arXiv:2501.11873) the counts are those of the last update's global batch, scaled to T k choices. The z-loss (Zoph et
/// al. 2022, arXiv:2202.08906) is the mean of lse^2.
class Experts {
 public:
  /// State of one micro-batch between forward and backward. N tokens of this rank's sequences, R rows of its experts.
  struct Saved {
    Arena* arena = nullptr;  ///< memory of the tensors below
    ConstTensorView input;
    RouterJitter noise;  ///< noise of the router's input
    TensorView logits;   ///< [N, E], in the type of the router
    TensorView chosen;   ///< [N, k]
    TensorView counts;   ///< [segments, E]; relative loads for BalanceLoss::global; empty without a balance loss
    parallel::TokenDispatcher::Saved route;
    bool recomputed = false;  ///< `expanded` and `shared` are in the work space: backward computes them again
    TensorView expanded;      ///< [R, f_local], gated [R, 2 f_local]; overwritten by backward
    ExpertLoad load;
    std::optional<FeedForward::Saved> shared;
  };
  struct Gradients {
    TensorView output;  ///< [s_local, b, h], of y
    std::optional<FeedForward::Gradients> shared;
  };

  /// Adds the parameters `prefix`.*: router.weight [E, h], with a bias router.bias [E], and of each expert i on this
  /// rank experts.i.fc.weight and experts.i.proj.weight; shared.*.
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix);
  /// Takes these parameters. `layer` counts over the full model.
  Experts(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
          const std::string& prefix, const ModelConfig& config, int layer);

  /// Sets the router's bias [E], initially 0, which is in the accumulation type. The value of the parameter, in the
  /// training type, is not used. Waits for the device.
  void set_bias(std::span<const double> bias) const;

  /// Sets the choices of each expert for the balance loss BalanceLoss::global, initially even; empty: even. ShapeError
  /// for another number of experts. Waits for the device.
  void set_balance_load(std::span<const double> chosen) const;

  /// `arena` must outlive the result, whose tensors forward allocates there.
  Saved make_saved(const LayerShape& shape, const RecomputedModules& recomputed, Arena& arena) const;
  Gradients make_gradients(const LayerShape& shape, Arena& arena) const;

  /// Overwrites y; x must outlive `saved`. An empty y only fills `saved`. `dropout` has the router's noise. Waits for
  /// the device.
  void forward(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout, Saved& saved,
               TensorView y) const;
  /// Computes dx from gradients.output, overwritten, and accumulates the gradients of all weights. The gradient of the
  /// mean loss of a micro-batch is `mean_gradient`.
  void backward(const LayerShape& shape, Saved& saved, const Gradients& gradients, TensorView dx,
                double mean_gradient) const;

  /// Experts of the layer, on all ranks.
  std::size_t count() const { return static_cast<std::size_t>(config_.count); }
  /// Sum of the loads of all backwards since the last call.
  ExpertLoad take_load() const;

 private:
  RouterProblem problem(const LayerShape& shape) const;
  /// Tokens over which a balance loss is formed: of a sequence or a micro-batch, on all context ranks.
  double segment_tokens(const LayerShape& shape) const;
  /// The balance loss over the sum of counts x sums: numerator / denominator.
  struct BalanceScale {
    double numerator, denominator;
  };
  BalanceScale balance_scale(const LayerShape& shape) const;
  /// This rank's tokens, which it sends to experts, of a tensor of all N tokens: all, or this tensor rank's share.
  template <class View>
  View own_of(View all) const;
  /// This rank's tokens [n, h] of `rows` of the residual stream.
  ConstTensorView tokens_of(ConstTensorView rows) const;
  /// Gathers the own tokens of all tensor ranks in `all`, a tensor of all N tokens.
  Work gather_own(TensorView all) const;
  /// Chooses experts for all tokens, given those of this rank in `rows` [n, h], and routes the latter.
  void route(const LayerShape& shape, ConstTensorView rows, Saved& saved) const;
  /// The router's input: `rows` with their noise, in the work space, or `rows` themselves without any.
  ConstTensorView with_noise(const LayerShape& shape, const Saved& saved, ConstTensorView rows) const;
  /// The choices `chosen` [n, k] of the tokens here within the experts' capacity, -1 for those beyond it, in the work
  /// space. The capacity is one of the micro-batch's tokens on all context ranks, in the order of their positions.
  ConstTensorView within_capacity(const LayerShape& shape, ConstTensorView chosen, ConstTensorView weights) const;
  /// Reads the chosen experts and the sums of the balance losses from the device.
  void read_load(const LayerShape& shape, ConstTensorView kept, ConstTensorView sums, ConstTensorView token_sums,
                 Saved& saved) const;
  /// y = sum of each token's `rows` [R, h] over its experts, on all ranks of the expert and the tensor group; plus
  /// `more` [n, h] of this tensor rank, if any. Overwrites y, rows of the residual stream.
  Work sum_tokens(const Saved& saved, ConstTensorView rows, TensorView y, ConstTensorView more = {}) const;
  /// `data` in the type of `logits`, converted into the work space if it differs.
  ConstTensorView in_type_of(ConstTensorView logits, ConstTensorView data) const;
  /// Accumulates the router's gradient from `dweights` [n, k] and those of the balance losses. Returns the gradient of
  /// its input `rows` in the work space, this tensor rank's term.
  TensorView backward_of_router(const LayerShape& shape, const Saved& saved, ConstTensorView rows,
                                ConstTensorView dweights, double mean_gradient) const;
  /// Returns the rows [R, h] of the experts here, of this rank's tokens `rows` [n, h], in the work space. With a shared
  /// block calls `run_shared`, which computes it: before the tokens travel, or while.
  TensorView dispatch(const Saved& saved, ConstTensorView rows, const std::function<void()>& run_shared) const;
  /// Fills `saved.expanded` from this rank's tokens `rows` [n, h], and `saved.shared`. Overwrites `of_shared` with the
  /// result of the shared block, unless it is empty.
  void expand(const LayerShape& shape, ConstTensorView rows, Saved& saved, TensorView of_shared) const;

  parallel::TensorContext context_;
  ExpertConfig config_;
  ColumnActivation activation_;
  TensorView router_, router_gradient_;
  Tensor bias_;                                       // [E] in the accumulation type; empty without one
  Tensor relative_load_;                              // [1, E] likewise: loads over their mean, for BalanceLoss::global
  std::vector<TensorView> expansions_, projections_;  // by expert [f_local or 2 f_local, h], [h, f_local]
  std::vector<TensorView> expansion_gradients_, projection_gradients_;
  std::unique_ptr<parallel::TokenDispatcher> dispatcher_;
  std::optional<FeedForward> shared_;
  mutable ExpertLoad load_;  // sum over the backwards since it was taken
};

}  // namespace trireme::model
