#pragma once

#include <string>

#include "src/parallel/gradient_sums.hpp"
#include "src/tensor/shape.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme::parallel {

/// Role of a parameter; determines its initial values and whether it decays. centred_norm_weight: a norm's weight that
/// is stored as its difference from 1.
enum class ParameterRole {
  embedding,
  matrix,
  residual_matrix,
  output_matrix,
  bias,
  norm_weight,
  centred_norm_weight,
  norm_bias,
  adapter_inputs,  ///< A [rank, in] of an adapter (LowRankTerm)
  adapter_outputs  ///< B [..., rank]
};

constexpr bool is_adapter(ParameterRole role) {
  return role == ParameterRole::adapter_inputs || role == ParameterRole::adapter_outputs;
}
/// Weight decay depends on the role: matrices and embeddings decay, biases and norms do not.
constexpr bool decays(ParameterRole role) {
  return role == ParameterRole::embedding || role == ParameterRole::matrix || role == ParameterRole::residual_matrix ||
         role == ParameterRole::output_matrix || is_adapter(role);
}

/// One rank's shard of one parameter of the model. Names and shapes are logical: the same on every grid.
struct Parameter {
  std::string name;  ///< "h.0.attn.qkv.weight"
  ParameterRole role = ParameterRole::matrix;
  Shape shape;    ///< shape of the unsharded tensor
  Box box;        ///< box of the shard
  Shape storage;  ///< shape of `value` and `gradient`: the box's extents, with padding rows at the end of dimension 0
  /// Every rank of the gradient group's tensor group holds the same box: counted on tensor rank 0 alone.
  bool replicated = false;
  /// Marks a replicated parameter that works on the sequence-parallel residual stream, or on heads. Each rank of the
  /// tensor group has the gradient of its own positions or heads only; a step sums it over the group once.
  bool gradient_is_partial = false;
  bool rows_are_tokens = false;  ///< the token embedding, or the matrix of the output layer
  bool shared_copy = false;      ///< a second holder of a tied tensor (the output head's `wte` on the last stage)
  bool tied = false;             ///< held by the first and the last stage: its gradient is the sum of both
  /// Number of the unit of parameters that are used together (the embeddings, a layer, the head). Units are consecutive
  /// in a rank's list, numbered from 0 in its order.
  int unit = 0;
  /// False for a router's bias: its gradient stays 0, which no norm and no count includes. The optimizer leaves it
  /// unchanged, and train::RouterBiases updates it.
  bool has_gradient = true;
  /// Not trained: without gradient, optimizer state and shards. `gradient` is empty, and no bucket has it.
  bool frozen = false;
  int gradient_group = 0;  ///< number of the GradientGroup that reduces its gradient and shards its state
  TensorView value;        ///< in the training type
  TensorView gradient;     ///< main gradient, to which backward adds: fp32, or fp64 in fp64 runs; empty if frozen
  GradientSum sum;         ///< state of the main gradient

  std::int64_t stored_numel() const { return storage.numel(); }
  /// Returns whether this rank, with `tensor_rank` in GradientGroup::tensor, represents the box among the ranks of its
  /// model replica: in norms, counts and checkpoints.
  bool counts_here(int tensor_rank) const { return !shared_copy && (!replicated || tensor_rank == 0); }
};

/// Returns whether a parameter is a matrix inside the model: no embedding, output layer or adapter.
inline bool is_hidden_matrix(const Parameter& p) {
  return p.role == ParameterRole::matrix || p.role == ParameterRole::residual_matrix;
}

}  // namespace trireme::parallel
