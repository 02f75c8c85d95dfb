#include "src/train/model_state.hpp"

#include <algorithm>

namespace trireme::train {

checkpoint::StateTensor state_tensor(ParallelGpt& gpt, std::size_t i, const std::string& kind, TensorView stored) {
  const parallel::Parameter& parameter = gpt.parameters().parameters()[i];
  const Communicator& holders = gpt.gradient_group();
  const bool sharded = gpt.parameters().layout().shards() > 1;
  const bool written_here =
      parameter.counts_here(gpt.communicators().tensor->rank()) &&
      (sharded || static_cast<int>(i % static_cast<std::size_t>(holders.size())) == holders.rank());
  const parallel::ShardPart own = gpt.parameters().part(i);
  const std::int64_t count = std::clamp<std::int64_t>(parameter.box.numel() - own.begin, 0, own.count);
  return {kind + "/" + parameter.name, parameter.shape,       parameter.box,
          count == 0 ? 0 : own.begin,  stored.flat(0, count), written_here};
}

ModelState::ModelState(ParallelGpt& gpt)
    : gpt_(gpt),
      masters_(gpt.backend(), accumulation_type(gpt.parameters().values().dtype()), gpt.parameters().values().shape()) {
  gpt.backend().elementwise().fill(gpt.backend().compute_stream(), 0, masters_);
}

std::vector<checkpoint::StateTensor> ModelState::tensors() {
  std::vector<checkpoint::StateTensor> tensors;
  const parallel::ParameterBuffer& parameters = gpt_.parameters();
  for (std::size_t i = 0; i < parameters.parameters().size(); ++i) {
    tensors.push_back(
        state_tensor(gpt_, i, "model",
                     masters_.view().flat(parameters.layout().offset(i), parameters.parameters()[i].stored_numel())));
  }
  return tensors;
}

void ModelState::write_back() {
  gpt_.backend().elementwise().convert(gpt_.backend().compute_stream(), masters_, gpt_.parameters().values());
}

}  // namespace trireme::train
