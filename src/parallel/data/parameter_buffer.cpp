#include "src/parallel/data/parameter_buffer.hpp"

#include <algorithm>
#include <utility>

namespace trireme::parallel {

namespace {

/// Elements a parameter takes up in its array, so that the next one begins at a multiple of 64 bytes.
std::int64_t padded_elements(DType dtype, const Parameter& parameter) {
  const std::int64_t alignment = 64 / static_cast<std::int64_t>(size_of(dtype));
  return (parameter.stored_numel() + alignment - 1) / alignment * alignment;
}

}  // namespace

std::int64_t ParameterBuffer::elements(DType dtype, const std::vector<Parameter>& parameters) {
  std::int64_t total = 0;
  for (const Parameter& parameter : parameters) total += padded_elements(dtype, parameter);
  return total;
}

ParameterBuffer::ParameterBuffer(Backend& backend, DType dtype, std::vector<Parameter> parameters)
    : parameters_(std::move(parameters)) {
  std::int64_t total = 0;
  for (const Parameter& parameter : parameters_) {
    offsets_.push_back(total);
    total += padded_elements(dtype, parameter);
  }
  values_ = Tensor(backend, dtype, {total});
  gradients_ = Tensor(backend, accumulation_type(dtype), {total});
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    parameter.value = values().flat(offsets_[i], parameter.stored_numel()).reshape(parameter.storage);
    parameter.gradient = gradients().flat(offsets_[i], parameter.stored_numel()).reshape(parameter.storage);
  }
  backend.elementwise().fill(backend.compute_stream(), 0, values());
  clear_gradients(backend);
}

const Parameter& ParameterBuffer::at(const std::string& name) const {
  const auto found = std::ranges::find(parameters_, name, &Parameter::name);
  TRIREME_CHECK(found != parameters_.end(), ShapeError, "this rank has no parameter '{}'", name);
  return *found;
}

void ParameterBuffer::clear_gradients(Backend& backend) {
  backend.elementwise().fill(backend.compute_stream(), 0, gradients());
}

void ParameterBuffer::sum_partial_gradients(Backend& backend, Communicator& tensor_group, Arena& workspace) {
  Stream& stream = backend.compute_stream();
  std::int64_t total = 0;
  for (const Parameter& parameter : parameters_) {
    if (parameter.gradient_is_partial) total += parameter.gradient.numel();
  }
  if (total == 0) return;
  const ArenaScope scope(workspace);
  const TensorView message = workspace.allocate(gradients().dtype(), {total});
  const auto for_each_part = [&](const auto& copy) {
    std::int64_t offset = 0;
    for (const Parameter& parameter : parameters_) {
      if (!parameter.gradient_is_partial) continue;
      copy(parameter.gradient, message.flat(offset, parameter.gradient.numel()));
      offset += parameter.gradient.numel();
    }
  };
  ElementwiseKernels& elementwise = backend.elementwise();
  for_each_part([&](TensorView gradient, TensorView part) { elementwise.convert(stream, gradient, part); });
  tensor_group.all_reduce(stream, message, ReduceOp::sum).wait(stream);
  for_each_part([&](TensorView gradient, TensorView part) { elementwise.convert(stream, part, gradient); });
}

void ParameterBuffer::reduce_gradients(Backend& backend, Communicator& data_group) {
  data_group.all_reduce(backend.compute_stream(), gradients(), ReduceOp::sum).wait(backend.compute_stream());
}

}  // namespace trireme::parallel
