#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::parallel {

/// Magnitudes that scales are made for. delayed: the largest of a tensor in earlier updates, over all micro-batches and
/// ranks; tensorwise: the largest of the tensor itself, on the ranks that share a micro-batch; blockwise: the largest
/// of each block.
enum class Fp8Recipe { delayed, tensorwise, blockwise };

/// Products in FP8. Names and meanings are Megatron-LM's, except that scales are powers of two.
struct Fp8Options {
  bool used = false;
  bool hybrid = true;  ///< gradients of outputs are e5m2, not e4m3
  Fp8Recipe recipe = Fp8Recipe::delayed;
  int margin = 0;                   ///< Fp8Product::margin
  int history = 1;                  ///< updates that delayed scales are made from
  bool largest_of_history = false;  ///< from the largest of them, not from the latest
  bool weight_gradients = true;     ///< or their products are not rounded
  int first_layers = 0;             ///< layers at the start of the model that are not rounded
  int last_layers = 0;              ///< and at its end
};

/// Scales of the products in FP8 of one rank: those of the weights of attention and of dense feed-forward blocks in the
/// model's layers. Others are not rounded. Largest magnitudes are in device memory: no product waits for the host.
class Fp8Scaling {
 public:
  enum class Role { input, weight, gradient };
  static constexpr int roles = 3, weights_of_layer = 6;

  /// `layers` is the number of layers of the model. The groups must outlive this; `context_group` may be null.
  Fp8Scaling(Backend& backend, const Fp8Options& options, int layers, Communicator& tensor_group,
             Communicator* context_group);

  /// Returns the number of a weight whose products are rounded; none of another.
  std::optional<int> number_of(const std::string& weight) const;

  /// Prepares for the micro-batches of an update, or an evaluation: weights have changed. With `measures` the
  /// magnitudes seen so far are forgotten.
  void begin(bool measures);

  /// An operand of a product.
  struct Input {
    Role role;
    ConstTensorView tensor;
    Fp8Copy* copy = nullptr;  ///< a result of `new_copy`, or null
    Fp8Source source = {};    ///< only with `computes_sources`
  };
  /// Rounding of the product of `first` and `second`, of weight `number`; none if it is not rounded. With delayed
  /// scales the update before the first scales only measures. The weight's copy is kept for all products from one
  /// `begin` to the next.
  std::optional<Fp8Product> product(int number, const Input& first, const Input& second);
  /// Allocates a copy of an operand of several products in `arena`, with sums or without; without memory if products
  /// are not rounded or the backend keeps none.
  Fp8Copy new_copy(Arena& arena, ConstTensorView tensor, bool has_sums) const;
  /// Returns whether the rounding of an operand computes its source: on backends that keep copies, unless its
  /// magnitude is measured before.
  bool computes_sources() const;
  /// Bytes of a copy of a matrix on such a backend; 0 on others.
  std::int64_t copy_bytes(std::int64_t rows, std::int64_t columns) const;
  /// Bytes of the weights' copies.
  std::size_t copied_bytes() const;

  /// Returns whether the magnitudes of an update determine the scales of the next one.
  bool is_delayed() const { return options_.recipe == Fp8Recipe::delayed; }
  /// Returns whether products are rounded, with scales known.
  bool rounds() const { return !is_delayed() || known_; }
  bool rounds_weight_gradients() const { return options_.weight_gradients; }
  /// Number of tensors with a scale in all layers of the model.
  std::size_t tensors() const { return static_cast<std::size_t>(layers_ * weights_of_layer * roles); }
  /// Returns the largest magnitudes seen on this rank since `begin`, [layers, weights_of_layer, roles]; waits for the
  /// compute stream.
  std::vector<double> read_seen();
  /// Sets the magnitudes of the scales, in the same order. Waits for the stream.
  void set_amax(std::span<const double> amax);
  /// Makes the next update measure them.
  void forget_amax() { known_ = false; }

 private:
  struct WeightCopy {
    Tensor memory;
    Fp8Copy copy;
  };
  Fp8Operand operand(int number, const Input& input);
  Fp8Copy* weight_copy(int number, ConstTensorView weight);
  TensorView slot(const Tensor& tensor, int number, Role role) const {
    return tensor.view().flat(number * roles + static_cast<int>(role), 1);
  }

  Backend& backend_;
  Fp8Options options_;
  int layers_;
  Communicator& tensor_group_;
  Communicator* context_group_;
  Tensor amax_, seen_;  // fp64 [layers, weights_of_layer, roles]
  std::map<int, WeightCopy> weights_;
  bool known_ = false;
};

/// Products of one weight, as of a linear layer: rounded, or not.
class Fp8Weight {
 public:
  /// Not rounded.
  Fp8Weight() = default;
  /// `scaling` may be null.
  Fp8Weight(Fp8Scaling* scaling, const std::string& weight);

  /// Inputs x and gradients dy of outputs, with their copies, which two products share, and sources.
  struct Operand {
    ConstTensorView tensor;
    Fp8Copy* copy = nullptr;
    Fp8Source source = {};
  };
  std::optional<Fp8Product> forward(const Operand& x, ConstTensorView w) const;
  std::optional<Fp8Product> backward_input(const Operand& dy, ConstTensorView w) const;
  std::optional<Fp8Product> backward_weight(const Operand& dy, const Operand& x) const;
  /// Allocates a copy of dy for both of its products; without memory if they do not share one.
  Fp8Copy gradient_copy(Arena& arena, ConstTensorView dy, bool has_sums) const;
  /// Bytes of a copy of x for both of its products, or 0.
  std::int64_t input_copy_bytes(std::int64_t rows, std::int64_t columns) const;
  /// Returns whether all products compute the sources of their operands.
  bool computes_sources() const;

 private:
  Fp8Scaling* scaling_ = nullptr;  // null: not rounded
  int number_ = 0;
};

}  // namespace trireme::parallel
