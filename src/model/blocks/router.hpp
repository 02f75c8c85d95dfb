#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/backend/fixed_indices.hpp"
#include "src/model/blocks/layer_shape.hpp"
#include "src/model/model_config.hpp"
#include "src/model/parameter_list.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/expert/token_dispatcher.hpp"
#include "src/parallel/tensor/tensor_context.hpp"

namespace trireme::model {

/// Load of the experts of one layer in the micro-batches since the last reading. On one rank of the tensor group: of
/// the tokens of this rank's sequences; summed over data ranks it is that of all tokens.
struct ExpertLoad {
  int layer = 0;
  std::vector<double> tokens;  ///< by expert of the model: tokens that it computed
  std::vector<double> chosen;  ///< likewise: tokens that chose it, also those beyond its capacity
  double dropped = 0;          ///< choices beyond the capacity
  double balance = 0;          ///< sum over micro-batches of the balance losses' mean, weighted by coefficients
  double z = 0;                ///< likewise of the z-loss: mean over tokens of lse^2
  double entropy = 0;          ///< likewise of the router's entropy: mean over tokens of -sum p log p
};

/// Router of a layer with experts (RouterProblem): chooses experts for all N tokens of this rank's sequences, limits
/// them to their capacity, and has the losses that balance them. Each rank of TensorContext::own_tokens computes the
/// logits of its tokens; all are gathered, so that every tensor rank chooses, drops and counts alike.
///
/// Balance losses (Fedus et al. 2021, arXiv:2101.03961): E / (k T^2) sum over experts of counts x sums
/// (ExpertKernels::route) over the T tokens of a micro-batch, or the mean of that over its sequences. With
/// BalanceLoss::global (Qiu et al. 2025, arXiv:2501.11873) the counts are those of the last update's global batch,
/// scaled to T k choices. Several losses are added up. The z-loss (Zoph et al. 2022, arXiv:2202.08906) is the mean of
/// lse^2. The device adds up the loads: forward and backward read nothing from it.
class Router {
 public:
  /// State of one micro-batch between forward and backward.
  struct Saved {
    RouterJitter noise;  ///< noise of the router's input
    TensorView logits;   ///< [N, E], in the type of the router
    TensorView chosen;   ///< [N, k]
    TensorView kept;     ///< [N, k], -1 for choices beyond the capacity; without one `chosen`
    TensorView weights;  ///< [N, k]
    /// [segments, E]; relative loads for BalanceLoss::global; with several losses their mean, each times its scale;
    /// empty without any
    TensorView counts;
    double balance_scale = 1;  ///< factor of the sum of counts x sums in the mean of the losses
    TensorView sums;           ///< likewise: of the scores
    TensorView token_sums;     ///< [2]
  };

  /// Adds the parameters `prefix`.router.weight [E, h], and with a bias router.bias [E].
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix);
  /// Takes these parameters. `layer` counts over the full model.
  Router(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters, const std::string& prefix,
         const ModelConfig& config, int layer);

  /// Experts::set_bias and set_balance_load.
  void set_bias(std::span<const double> bias) const;
  void set_balance_load(std::span<const double> chosen) const;

  /// Chooses experts for all tokens, given this rank's in `rows` [n, h]. Allocates in `arena`.
  Saved forward(const LayerShape& shape, ConstTensorView rows, const RouterJitter& noise, Arena& arena) const;
  /// Accumulates the router's gradient from `dweights` [n, k] and those of the balance losses, and adds the load of the
  /// micro-batch. Returns the gradient of its input `rows` in the work space, this tensor rank's term.
  TensorView backward(const LayerShape& shape, const Saved& saved, ConstTensorView rows, ConstTensorView dweights,
                      double mean_gradient) const;

  /// Rows of an expert with TensorContext::pad_experts: its capacity, or the tokens that can choose it. Ranks that
  /// share a micro-batch may have all of its choices.
  parallel::TokenDispatcher::Room room(const LayerShape& shape) const;
  /// Sum of the loads of all backwards since the last call. Waits for the device.
  ExpertLoad take_load() const;

 private:
  RouterProblem problem(const LayerShape& shape) const;
  int context_ranks() const { return context_.context_group == nullptr ? 1 : context_.context_group->size(); }
  /// Tokens of a micro-batch on all context ranks, and those that an expert computes at most.
  std::int64_t all_tokens(const LayerShape& shape) const { return shape.rows() * context_ranks(); }
  std::int64_t capacity(const LayerShape& shape) const;
  /// Factor of the sum of counts x sums in a balance loss.
  double balance_scale(const LayerShape& shape, BalanceLoss loss) const;
  /// Sets the counts and scale of a micro-batch with these sums over its sequences, or over all of it.
  void set_balance(const LayerShape& shape, TensorView counts, Arena& arena, Saved& saved) const;
  /// The router's input: `rows` with their noise, in the work space, or `rows` themselves without any.
  ConstTensorView with_noise(const LayerShape& shape, const RouterJitter& noise, ConstTensorView rows) const;
  /// Overwrites `kept` [n, k] with the choices `chosen` of the tokens here within the experts' capacity, -1 for those
  /// beyond it. The capacity is one of the micro-batch's tokens on all context ranks, in the order of their positions.
  void limit(const LayerShape& shape, ConstTensorView chosen, ConstTensorView weights, TensorView kept) const;
  /// `data` in the type of `logits`, converted into the work space if it differs.
  ConstTensorView in_type_of(ConstTensorView logits, ConstTensorView data) const;

  parallel::TensorContext context_;
  ExpertConfig config_;
  std::vector<BalanceTerm> balance_;
  double balance_coefficient_ = 0;  // sum of theirs
  int layer_;
  TensorView weight_, gradient_;
  Tensor bias_;                         // [E] in the accumulation type; empty without one
  Tensor relative_load_;                // [1, E] likewise: loads over their mean, for BalanceLoss::global
  Tensor load_;                         // ExpertKernels::add_load since it was taken
  mutable FixedIndices order_, place_;  // by size: numbers of rows gathered from context ranks, and of those here
};

}  // namespace trireme::model
