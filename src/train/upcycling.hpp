#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/checkpoint/state.hpp"
#include "src/model/model_config.hpp"

namespace trireme::train {

/// Start of a model with experts from the weights of a dense model, as in Megatron Core (sparse upcycling: Komatsuzaki
/// et al. 2022, arXiv:2212.05055; fine-grained: He et al. 2024, arXiv:2410.07524). With a granularity G each block is
/// cut into G parts by its columns, and expert e is part e mod G. The routers' rows of the G experts of a block are
/// equal, so that tokens choose complete blocks: model::Initialisation::router_repeats. The weights of an expert are
/// multiplied by s^(1/3) with a gate or squared ReLU, else by s^(1/2). For the weights of k chosen experts s = G, and
/// for those of a softmax over all E experts s = E G / k. Squared ReLU without such a softmax, or s = 1, makes the
/// first forward that of the dense model; otherwise it is near it.
class Upcycling {
 public:
  /// ConfigError, naming the option, if the experts of `config` are no such parts of blocks, or if there is a shared
  /// expert.
  Upcycling(const model::ModelConfig& config, std::int64_t granularity);

  /// The dense model: the same without experts, of G times their width.
  const model::ModelConfig& dense_form() const { return dense_; }
  /// The weights of the model with experts, as tensors of a checkpoint of its dense form. Routers are left out: they
  /// keep their initial values.
  std::vector<checkpoint::StateTensor> tensors(std::vector<checkpoint::StateTensor> weights);
  /// Multiplies the loaded data of the latest `tensors`, in their order, in host memory.
  void scale(std::span<const checkpoint::StateTensor> loaded) const;

 private:
  model::ModelConfig dense_;
  std::int64_t granularity_;
  double factor_ = 1;
  std::vector<std::size_t> of_experts_;  // their numbers among the latest tensors
};

}  // namespace trireme::train
