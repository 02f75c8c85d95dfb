#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/model/blocks/layer_shape.hpp"
#include "src/model/blocks/norm.hpp"

namespace trireme::model {

/// Norms of a layer, and sums of the residual stream x with the layer's two branches F_1 (attention) and F_2
/// (feed-forward). Adds each branch's output bias b with dropout. A model is pre-norm, parallel, post-norm or has norms
/// after branches, or before and after them.
class ResidualForm {
 public:
  /// State of one micro-batch between forward and backward, [s_local, b, h].
  struct Saved {
    ConstTensorView input;
    TensorView normed_1;  ///< result of the first norm; with norms after branches, its input
    NormStatistics statistics_1;
    TensorView middle;  ///< first sum of stream and branch
    /// Pre-norm, parallel: result of the second norm or the shared one. Post-norm: second sum. Norms after branches:
    /// input of the second.
    TensorView second;
    NormStatistics statistics_2;
    TensorView result_1, result_2;  ///< results of the branches, with norms before and after them
    NormStatistics result_statistics_1, result_statistics_2;

    Saved rows(parallel::RowChunk chunk) const;
  };
  using Gathering = parallel::TensorContext::Gathering;
  using RowChunk = parallel::RowChunk;
  /// A branch y = F(x) in forward: `whole`, `chunk`, or both in this order. With an empty y it only saves for backward.
  struct Branch {
    /// Computes what depends on all rows: everything, or with `chunk` what that reads.
    std::function<void(Gathering& x, TensorView y)> whole;
    /// Computes this rank's term of a chunk of y. The form sums the terms over the tensor group.
    std::function<void(RowChunk chunk, Gathering& x, TensorView term)> chunk;
    bool gathers = true;  ///< reads all rows of x; otherwise its own are enough, and it gathers what it needs
    TensorView bias;
    Dropout dropout;
  };
  /// The norm of a layer's input, which the layer before may compute with its last sum.
  struct InputNorm {
    const Norm& norm;
    TensorView normed;
    NormStatistics statistics;
  };
  /// Memory that the layers of a pass share, forward or backward, and work that each leaves to the next one: a layer's
  /// last sums over the tensor group run beside the first products of the next, which completes its input chunk by
  /// chunk.
  class Handover {
   public:
    /// Completes a chunk and, unless it is null, the norm of its rows.
    using Rest = std::function<void(RowChunk, const InputNorm*)>;

    /// Allocates memory in the work space.
    Handover(const parallel::TensorContext& context, const LayerShape& shape);
    Handover& operator=(Handover&&) = delete;
    /// A tensor like the residual stream: a layer writes it after it has completed its input.
    TensorView residual() const { return residual_; }
    /// TensorContext::all_rows_of the stream. A layer writes a chunk after it has completed that of its input.
    TensorView all_rows() const { return all_rows_; }
    /// The same for the gathered input of one product at a time.
    TensorView input_rows() const { return input_rows_; }

    /// Leaves `rest`, which completes a chunk of a layer's result, to the next layer.
    void leave(Rest rest);
    /// Calls `function` when the result is complete.
    void then(std::function<void()> function);
    /// Completes a chunk of the last result, if any, and a norm of its rows. The chunks follow one another. Returns
    /// whether there was one.
    bool complete(RowChunk chunk, const InputNorm* norm = nullptr);
    /// Completes all chunks that are left.
    void finish();

   private:
    int chunks_;
    TensorView residual_, all_rows_, input_rows_;
    Rest rest_;
    int completed_ = 0;  // chunks of rest_
    std::function<void()> then_;
  };

  /// A branch in backward.
  struct BranchGradient {
    TensorView output;  ///< gradient of y, overwritten before the functions
    /// Runs first and reads the rows of `output` of all ranks; may be absent.
    std::function<void(Gathering& doutput)> output_part;
    /// Overwrites dx by way of `term`, and returns its sums in flight (ColumnParallelLinear::backward_input).
    std::function<parallel::ChunkWorks(TensorView dx, TensorView term)> input_part;
    TensorView bias_gradient;
    Dropout dropout;
  };

  /// Adds the norms of branch 1 or 2 of the layer `prefix`: ln_1.* or, unless it is shared, ln_2.*; with norms before
  /// and after branches also out_ln_1.* or out_ln_2.* of its result.
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix, int branch);
  /// Makes the model's form with these parameters of the layer `prefix`.
  static std::unique_ptr<ResidualForm> make(const parallel::TensorContext& context,
                                            const parallel::ParameterBuffer& parameters, const std::string& prefix,
                                            const ModelConfig& config);
  ResidualForm(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
               const std::string& prefix, const ModelConfig& config);
  virtual ~ResidualForm() = default;

  virtual Saved make_saved(const LayerShape& shape, Arena& arena) const;
  /// Returns a tensor like the residual stream that only `backward` reads.
  virtual TensorView unread_by_weights(const Saved& saved) const { return saved.middle; }
  /// Overwrites y when `handover` completes it; x, which it may still have to complete, must outlive `saved`. An empty
  /// y only fills `saved`. Works chunk by chunk (LayerShape::row_chunks): the sum of a branch's chunk runs beside the
  /// products of other chunks. Until y is complete, `saved` may be overwritten only by the forward of the next layer.
  void forward(const LayerShape& shape, ConstTensorView x, const Branch& attention, const Branch& feed_forward,
               Saved& saved, Handover& handover, TensorView y) const;
  /// Overwrites dx, and completes the gradients of norms and biases, to which it adds, when `handover` completes dx.
  void backward(const LayerShape& shape, ConstTensorView dy, const BranchGradient& attention,
                const BranchGradient& feed_forward, const Saved& saved, Handover& handover, TensorView dx) const;

 protected:
  /// Result of a branch without its bias, and the rest of its term of the residual stream; or the gradients of result
  /// and bias.
  struct Term {
    TensorView value;
    TensorView bias;
    Dropout dropout;
  };
  /// Tensors of forward, or their rows of one chunk.
  struct Forward {
    Saved saved;
    ConstTensorView attention_input, feed_forward_input;
    Term attention, feed_forward;
    TensorView scratch;  ///< Handover::residual
    TensorView y;
  };
  /// Tensors of backward, or their rows of one chunk.
  struct Backward {
    Saved saved;
    ConstTensorView dy;
    Term attention, feed_forward;
    TensorView dfeed_forward;  ///< gradient of the feed-forward block's input
    TensorView scratch;        ///< if has_gradient_scratch
    TensorView dx;             ///< gradient of attention's input, then of x
  };

  /// Fills the inputs and results of the branches.
  virtual void prepare(const LayerShape& shape, Forward& f) const = 0;
  virtual bool has_gradient_scratch() const { return false; }

  /// Norm of the layer's input, Saved::normed_1; null: none.
  virtual const Norm* input_norm() const { return nullptr; }
  // The work on some rows, in order of time: after that norm, between the branches, after the feed-forward block, with
  // the norm of the next layer or null.
  virtual void enter(const Forward&) const {}
  virtual void connect(const Forward& f) const = 0;
  virtual void leave(const Forward& f, const InputNorm* next) const = 0;
  // The same of backward: before the feed-forward block's, between the branches, after attention's.
  virtual void enter_backward(const Backward& b) const = 0;
  virtual void connect_backward(const Backward& b) const = 0;
  virtual void leave_backward(const Backward& b) const = 0;

  /// sum = stream + dropout(value + b), and its norm, unless `next` is null.
  void add_term(const Term& term, ConstTensorView stream, TensorView sum, const InputNorm* next = nullptr) const;
  /// Computes the gradient of a branch's result from that of its sum, and accumulates that of the bias.
  void backward_term(const Term& term, ConstTensorView dsum) const;
  /// normed = norm(value + b); replaces the value by that sum.
  void norm_result(const Term& term, const Norm& norm, const NormStatistics& statistics, TensorView normed) const;
  /// backward_term for a term whose `result` was normed.
  void backward_normed(const Term& term, ConstTensorView dsum, const Norm& norm, ConstTensorView result,
                       const NormStatistics& statistics) const;

  parallel::TensorContext context_;
  Norm norm_1_, norm_2_;

 private:
  class BranchRun;
  /// Rows of a chunk.
  Forward rows(const LayerShape& shape, const Forward& all, RowChunk chunk) const;
  Backward rows(const LayerShape& shape, const Backward& all, RowChunk chunk) const;
};

}  // namespace trireme::model
