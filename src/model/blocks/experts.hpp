#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/model/blocks/feed_forward.hpp"
#include "src/model/blocks/recomputation.hpp"
#include "src/model/blocks/router.hpp"
#include "src/parallel/expert/token_dispatcher.hpp"

namespace trireme::model {

/// Feed-forward block of experts (ExpertConfig): y[t] = sum over the chosen experts i of w[t, i] F_i(x[t]), F_i a block
/// like FeedForward without biases, w from the router (RouterProblem), plus a shared block of all tokens, if any. x, y
/// [s_local, b, h]. Each expert is split over the tensor ranks like a dense block; whole experts are divided over
/// TensorContext::expert_group (parallel::TokenDispatcher). With TensorContext::expert_splits that group also splits
/// each expert, and each tensor rank sends only its own n = s b / t tokens.
///
/// With RecomputedModules::experts only the input and the route are kept, and tokens travel once more in backward.
///
/// The rows R that this rank computes depend on the data: forward reads their number from the device. With
/// TensorContext::pad_experts they do not, and R is Router::room for each expert here; further rows are 0.
class Experts {
 public:
  /// State of one micro-batch between forward and backward.
  struct Saved {
    Arena* arena = nullptr;  ///< memory of the tensors below
    ConstTensorView input;
    Router::Saved router;
    parallel::TokenDispatcher::Saved route;
    bool recomputed = false;  ///< `expanded` and `shared` are in the work space: backward computes them again
    TensorView expanded;      ///< [R, f_local], gated [R, 2 f_local]; overwritten by backward
    std::optional<FeedForward::Saved> shared;
  };
  struct Gradients {
    TensorView output;  ///< [s_local, b, h], of y
    std::optional<FeedForward::Gradients> shared;
  };

  /// Adds the parameters `prefix`.*: the router's, of each expert i on this rank experts.i.fc.weight and
  /// experts.i.proj.weight, and shared.*.
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix);
  /// Takes these parameters. `layer` counts over the full model.
  Experts(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
          const std::string& prefix, const ModelConfig& config, int layer);

  /// Sets the router's bias [E], initially 0, which is in the accumulation type. The value of the parameter, in the
  /// training type, is not used. Waits for the device.
  void set_bias(std::span<const double> bias) const { router_.set_bias(bias); }

  /// Sets the choices of each expert for the balance loss BalanceLoss::global, initially even; empty: even. ShapeError
  /// for another number of experts. Waits for the device.
  void set_balance_load(std::span<const double> chosen) const { router_.set_balance_load(chosen); }

  /// `arena` must outlive the result, whose tensors forward allocates there.
  Saved make_saved(const LayerShape& shape, const RecomputedModules& recomputed, Arena& arena) const;
  Gradients make_gradients(const LayerShape& shape, Arena& arena) const;

  /// Overwrites y; x must outlive `saved`. An empty y only fills `saved`. `dropout` has the router's noise. Waits for
  /// the device, unless experts are padded.
  void forward(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout, Saved& saved,
               TensorView y) const;
  /// Computes dx from gradients.output, overwritten, and accumulates the gradients of weights that are not frozen. The
  /// gradient of the mean loss of a micro-batch is `mean_gradient`.
  void backward(const LayerShape& shape, Saved& saved, const Gradients& gradients, TensorView dx,
                double mean_gradient) const;

  /// Experts of the layer, on all ranks.
  std::size_t count() const { return static_cast<std::size_t>(config_.count); }
  /// Sum of the loads of all backwards since the last call. Waits for the device.
  ExpertLoad take_load() const { return router_.take_load(); }

 private:
  /// This rank's tokens [n, h] of `rows` of the residual stream.
  ConstTensorView tokens_of(ConstTensorView rows) const;
  /// y = sum of each token's `rows` [R, h] over its experts, on all ranks of the expert and the tensor group; plus
  /// `more` [n, h] of this tensor rank, if any. Overwrites y, rows of the residual stream.
  void sum_tokens(const Saved& saved, ConstTensorView rows, TensorView y, ConstTensorView more = {}) const;
  /// Returns the rows [R, h] of the experts here, of this rank's tokens `rows` [n, h], in the work space. With a shared
  /// block calls `run_shared`, which computes it: before the tokens travel, or while.
  TensorView dispatch(const Saved& saved, ConstTensorView rows, const std::function<void()>& run_shared) const;
  /// Fills `saved.expanded` from this rank's tokens `rows` [n, h], and `saved.shared`. Overwrites `of_shared` with the
  /// result of the shared block, unless it is empty.
  void expand(const LayerShape& shape, ConstTensorView rows, Saved& saved, TensorView of_shared) const;

  parallel::TensorContext context_;
  ExpertConfig config_;
  ColumnActivation activation_;
  Router router_;
  int layer_;
  std::vector<TensorView> expansions_, projections_;  // by expert [f_local or 2 f_local, h], [h, f_local]
  std::vector<TensorView> expansion_gradients_, projection_gradients_;  // empty if frozen
  std::vector<parallel::GradientSum> expansion_sums_, projection_sums_;
  parallel::LowRankTerm expansion_adapter_, projection_adapter_;
  std::unique_ptr<parallel::TokenDispatcher> dispatcher_;
  std::optional<FeedForward> shared_;
};

}  // namespace trireme::model
