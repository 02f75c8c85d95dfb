#include "src/optim/grad_norm.hpp"

#include <algorithm>
#include <cmath>

namespace trireme::optim {

double gradient_norm(Backend& backend, const parallel::ParameterBuffer& parameters, int tensor_rank,
                     Communicator& model_group) {
  Stream& stream = backend.compute_stream();
  const Tensor sum(backend, DType::fp64, {1});
  backend.elementwise().fill(stream, 0, sum);
  for (const parallel::Parameter& parameter : parameters.parameters()) {
    if (parameter.counts_here(tensor_rank)) backend.reduce().sum_squares(stream, parameter.gradient, sum);
  }
  model_group.all_reduce(stream, sum, ReduceOp::sum).wait(stream);
  double squares = 0;
  backend.copy_to_host(stream, sum, TensorView(&squares, {1}));
  stream.synchronize();
  return std::sqrt(squares);
}

double clip_coefficient(double norm, double limit) { return limit == 0 ? 1 : std::min(1.0, limit / (norm + 1e-6)); }

}  // namespace trireme::optim
