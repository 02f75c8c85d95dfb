#include "src/optim/grad_norm.hpp"

#include <algorithm>
#include <cmath>

namespace trireme::optim {

double gradient_norm(Backend& backend, const parallel::ParameterBuffer& parameters, int tensor_rank,
                     Communicator& model_group, Communicator& gradient_group, TensorView sum) {
  Stream& stream = backend.compute_stream();
  backend.elementwise().fill(stream, 0, sum);
  const auto counts = [tensor_rank](const parallel::Parameter& p) { return p.counts_here(tensor_rank); };
  for (std::size_t bucket = 0; bucket < parameters.layout().buckets().size(); ++bucket) {
    parameters.for_each_stretch(bucket, counts, [&](bool count_here, std::int64_t begin, std::int64_t count) {
      if (!count_here) return;
      backend.reduce().sum_squares(stream, parameters.shard_gradients(bucket).flat(begin, count), sum);
    });
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
