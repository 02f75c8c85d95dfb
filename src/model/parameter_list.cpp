#include "src/model/parameter_list.hpp"

#include <utility>

namespace trireme::model {

using parallel::Parameter;

StageShard StageShard::of(const parallel::PipelineLayout& layout, int tensor_rank, int tensor_size, int pipeline_rank) {
  StageShard shard;
  for (int chunk = 0; chunk < layout.chunks; ++chunk) {
    const int position = chunk * layout.stages + pipeline_rank;
    shard.chunks.push_back({layout.first_layer(position), layout.layers[static_cast<std::size_t>(position)]});
  }
  shard.first_stage = pipeline_rank == 0;
  shard.last_stage = pipeline_rank == layout.stages - 1;
  shard.tensor_rank = tensor_rank;
  shard.tensor_size = tensor_size;
  shard.expert_tensor_rank = tensor_rank;
  shard.expert_tensor_size = tensor_size;
  return shard;
}

Parameter& ParameterList::replicated(std::string name, Role role, const Shape& shape) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.role = role;
  parameter.shape = shape;
  parameter.box = Box::whole(shape);
  parameter.storage = shape;
  parameter.replicated = true;
  parameter.gradient_is_partial = shard_.sequence_parallel;
  return list_.emplace_back(std::move(parameter));
}

Parameter& ParameterList::split(std::string name, Role role, const Shape& shape, int dimension) {
  Parameter& parameter = replicated(std::move(name), role, shape);
  parameter.replicated = split_size_ == 1;
  parameter.gradient_is_partial = false;
  parameter.box.extent[dimension] = shape[dimension] / split_size_;
  parameter.box.offset[dimension] = parameter.box.extent[dimension] * split_rank_;
  parameter.storage = parameter.box.extent;
  return parameter;
}

void ParameterList::column_parallel(const std::string& prefix, bool bias, const Shape& shape, int dimension) {
  split(prefix + ".weight", Role::matrix, shape, dimension);
  adapt(prefix, shape, dimension);
  const Shape outputs(shape.extents().first(static_cast<std::size_t>(shape.rank() - 1)));
  if (bias) split(prefix + ".bias", Role::bias, outputs, dimension);
}

void ParameterList::row_parallel(const std::string& prefix, bool bias, std::int64_t outputs, std::int64_t inputs) {
  split(prefix + ".weight", Role::residual_matrix, {outputs, inputs}, 1);
  adapt(prefix, {outputs, inputs}, 1);
  if (bias) replicated(prefix + ".bias", Role::bias, {outputs});
}

void ParameterList::replicated_linear(const std::string& prefix, std::int64_t outputs, std::int64_t inputs) {
  replicated(prefix + ".weight", Role::matrix, {outputs, inputs});
  adapt(prefix, {outputs, inputs}, -1);
}

void ParameterList::dense(const std::string& prefix, std::int64_t outputs, std::int64_t inputs, Role role) {
  replicated(prefix + ".weight", role, {outputs, inputs});
  replicated(prefix + ".bias", Role::bias, {outputs});
}

void ParameterList::adapt(const std::string& prefix, const Shape& shape, int dimension) {
  if (!adapters_.adapt(prefix)) return;
  const int last = shape.rank() - 1;
  const auto add = [&](const char* suffix, Role role, const Shape& matrix, int of_matrix, bool is_split) {
    if (is_split) return static_cast<void>(split(prefix + suffix, role, matrix, of_matrix));
    Parameter& parameter = replicated(prefix + suffix, role, matrix);
    if (dimension >= 0) parameter.gradient_is_partial = split_size_ > 1;
  };
  Shape outputs = shape;
  outputs[last] = adapters_.rank;
  add(".lora_a.weight", Role::adapter_inputs, {adapters_.rank, shape[last]}, 1, dimension == last);
  add(".lora_b.weight", Role::adapter_outputs, outputs, dimension, dimension >= 0 && dimension != last);
}

std::vector<Parameter> ParameterList::take() {
  for (Parameter& parameter : list_) {
    if (!adapters_.any() || parallel::is_adapter(parameter.role) || !parameter.has_gradient) continue;
    parameter.frozen = true;
    parameter.gradient_is_partial = parameter.tied = false;
  }
  return std::move(list_);
}

void ParameterList::end_unit() {
  for (; first_of_unit_ < list_.size(); ++first_of_unit_) list_[first_of_unit_].unit = unit_;
  ++unit_;
}

}  // namespace trireme::model
