#include "src/train/state_tensors.hpp"

#include <algorithm>

#include "src/train/router_biases.hpp"

namespace trireme::train {
namespace {

/// The piece of parameter i that `holder`, one of the ranks with the same parameter, keeps. `tensor_rank` is its rank
/// in the tensor group of the gradient group.
checkpoint::StateTensor state_piece(const parallel::Parameter& parameter, std::size_t i,
                                    const parallel::BufferLayout& layout, int tensor_rank,
                                    const parallel::GradientGroupMember& holder) {
  const bool sharded = layout.home_of(i).shards > 1;
  const bool written_here =
      parameter.counts_here(tensor_rank) && (sharded || static_cast<int>(i) % holder.ranks == holder.rank);
  const parallel::ShardRange own = layout.shard_range(i, parameter.stored_numel(), sharded ? holder.rank : 0);
  // Padding behind the box is left out.
  const std::int64_t count = std::clamp<std::int64_t>(parameter.box.numel() - own.begin, 0, own.count);
  const TensorView data(static_cast<std::byte*>(nullptr), DType::fp32, {count});
  const int family = 2 * parameter.gradient_group + (parameter.replicated ? 1 : 0);
  return {parameter.name, parameter.shape, parameter.box, count == 0 ? 0 : own.begin, data, written_here, family};
}

std::vector<TensorView> data_of(const std::vector<checkpoint::StateTensor>& tensors) {
  std::vector<TensorView> data;
  for (const checkpoint::StateTensor& tensor : tensors) data.push_back(tensor.data);
  return data;
}

}  // namespace

std::vector<checkpoint::StateTensor> state_pieces(const model::ModelConfig& config, const ExecutionConfig& execution,
                                                  const parallel::ProcessGrid& grid, int rank) {
  validate(execution, config, grid.expert_size(), grid.folds_experts());
  const parallel::GridPosition at = grid.position(rank);
  // A sequence of which every grid has positions: its length is not known here.
  model::LayerShape::of(config, grid.tensor_size(), 1, grid.tensor_size(), false, execution.dtype,
                        grid.expert_tensor_size());
  const parallel::VocabularyPartition vocabulary(config.vocabulary, at.tensor, grid.tensor_size(),
                                                 execution.vocabulary_multiple, execution.padded_vocabulary_size);
  const parallel::PipelineLayout pipeline =
      parallel::PipelineLayout::of(config.layers, grid.pipeline_size(), execution.parallel.pipeline);
  const model::StageShard shard = stage_shard(pipeline, grid, rank);
  const std::vector<parallel::Parameter> parameters = model::model_parameters(config, shard, vocabulary);
  std::vector<parallel::GradientGroupMember> holders = {{grid.gradient_size(), grid.gradient_rank(rank)}};
  if (shard.divides_experts()) holders.push_back({grid.expert_gradient_size(), grid.expert_gradient_rank(rank)});
  const parallel::BufferLayout buffer =
      parallel::ParameterBuffer::make_layout(execution.dtype, parameters, execution.parallel.data_parallel, holders);
  std::vector<checkpoint::StateTensor> pieces;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto group = static_cast<std::size_t>(parameters[i].gradient_group);
    const int tensor_rank = group == 0 ? at.tensor : shard.expert_tensor_rank;
    pieces.push_back(state_piece(parameters[i], i, buffer, tensor_rank, holders[group]));
  }
  return pieces;
}

checkpoint::StateTensor state_tensor(ParallelModel& model, std::size_t i, const std::string& kind, TensorView stored) {
  const parallel::Parameter& parameter = model.parameters().parameters()[i];
  const parallel::GradientGroup& group = model.group_of(parameter);
  checkpoint::StateTensor piece = state_piece(parameter, i, model.parameters().layout(), group.tensor.rank(),
                                              {group.gradient.size(), group.gradient.rank()});
  piece.name = kind + "/" + piece.name;
  piece.data = stored.flat(0, piece.data.numel());
  return piece;
}

ModelState::ModelState(ParallelModel& model)
    : model_(model),
      masters_(model.backend(), accumulation_type(model.parameters().values().dtype()),
               model.parameters().values().shape()) {
  model.backend().elementwise().fill(model.backend().compute_stream(), 0, masters_);
}

std::vector<checkpoint::StateTensor> ModelState::tensors() {
  std::vector<checkpoint::StateTensor> tensors;
  for (std::size_t i = 0; i < model_.parameters().parameters().size(); ++i) {
    tensors.push_back(state_tensor(model_, i, "model", master(i)));
  }
  return tensors;
}

TensorView ModelState::master(std::size_t i) const {
  const parallel::ParameterBuffer& parameters = model_.parameters();
  return masters_.view().flat(parameters.layout().offset(i), parameters.parameters()[i].stored_numel());
}

void ModelState::write_back() {
  model_.backend().elementwise().convert(model_.backend().compute_stream(), masters_, model_.parameters().values());
  if (model_.config().experts.router_bias) RouterBiases(model_).read([this](std::size_t i) { return master(i); });
}

HostState::HostState(Backend& backend, std::vector<checkpoint::StateTensor> tensors, HostCopies::Allocation allocation)
    : backend_(backend),
      tensors_(std::move(tensors)),
      copies_(backend, data_of(tensors_), allocation),
      copying_(backend.make_stream()) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].data = copies_.host(i);
}

void HostState::fetch() {
  copies_.download(backend_.compute_stream());
  copies_.wait();
}

void HostState::begin_fetch() {
  copying_->wait(*backend_.compute_stream().record());
  copies_.download(*copying_);
}

void HostState::store() {
  copies_.upload(backend_.compute_stream());
  copies_.wait();
}

}  // namespace trireme::train
