#pragma once

#include "src/parallel/pipeline/schedule.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme::parallel {

/// One rank's shard of a model in a pipeline: chunks of consecutive layers, one without virtual stages. They are
/// numbered from 0 in the order in which data passes this rank. The executor calls the stage and moves data between
/// stages. The stage keeps what its backward needs, by chunk and micro-batch.
class Stage {
 public:
  virtual ~Stage() = default;

  /// Type of the activations that pass from chunk to chunk, and of their gradients.
  virtual DType boundary_dtype() const = 0;
  /// Shape of the activation of a micro-batch of the run. Each rank derives it from its own micro-batch. All stages
  /// hold the same fields, so messages need no exchange of shapes.
  virtual Shape boundary_shape(int micro_batch) const = 0;

  /// Returns whether this rank's chunk is the first one (reads tokens, has no input), or the last one (computes the
  /// loss, has no output).
  virtual bool is_first(int chunk) const = 0;
  virtual bool is_last(int chunk) const = 0;
  /// Returns whether backward reads the input of forward again. Otherwise the input is released after forward.
  virtual bool reads_input_in_backward(int /*chunk*/) const { return true; }

  /// Returns whether steps of this run may need an idle GPU even if steps of their shapes ran before: to load kernels
  /// or record graphs. Receives are then not posted ahead.
  virtual bool may_need_idle_gpu() const { return false; }

  /// Runs `chunk` on `micro_batch`. `input` is empty for the first chunk, `output` for the last. If backward reads
  /// `input`, it stays valid until the chunk's backward_weight of this micro-batch is done. `output` is overwritten.
  virtual void forward(int chunk, int micro_batch, ConstTensorView input, TensorView output) = 0;
  /// Gradient of the input from that of the output. `output_gradient` is empty for the last chunk (the loss starts it),
  /// `input_gradient`, overwritten, for the first. `output_gradient` stays valid until backward_weight is done.
  virtual void backward_input(int chunk, int micro_batch, ConstTensorView output_gradient,
                              TensorView input_gradient) = 0;
  /// Adds the parameters' gradients and releases the micro-batch; after its backward_input, possibly much later.
  virtual void backward_weight(int chunk, int micro_batch) = 0;
  /// Both halves at once, so that a stage may go layer by layer and keep less in between.
  virtual void backward(int chunk, int micro_batch, ConstTensorView output_gradient, TensorView input_gradient) {
    backward_input(chunk, micro_batch, output_gradient, input_gradient);
    backward_weight(chunk, micro_batch);
  }
};

/// Calls the stage's function for `step`. `input` and `output` are its tensors, or the gradients in a backward.
void run_step(Stage& stage, const Step& step, ConstTensorView input, TensorView output);

}  // namespace trireme::parallel
