#include "src/optim/grad_norm.hpp"

#include <algorithm>
#include <cmath>

namespace trireme::optim {

double gradient_norm(Backend& backend, const parallel::ParameterBuffer& parameters, int tensor_rank,
                     Communicator& model_group, Communicator& gradient_group, TensorView sum) {
  Stream& stream = backend.compute_stream();
  backend.elementwise().fill(stream, 0, sum);
  for (std::size_t i = 0; i < parameters.parameters().size(); ++i) {
    if (!parameters.parameters()[i].counts_here(tensor_rank)) continue;
    if (const TensorView gradient = parameters.shard_gradient(i); gradient.numel() > 0) {
      backend.reduce().sum_squares(stream, gradient, sum);
    }
  }
  if (parameters.layout().shards() > 1) gradient_group.all_reduce(stream, sum, ReduceOp::sum).wait(stream);
  model_group.all_reduce(stream, sum, ReduceOp::sum).wait(stream);
  double squares = 0;
  backend.copy_to_host(stream, sum, TensorView(&squares, {1}));
  stream.synchronize();
  return std::sqrt(squares);
}

double clip_coefficient(double norm, double limit) { return limit == 0 ? 1 : std::min(1.0, limit / (norm + 1e-6)); }

}  // namespace trireme::optim
