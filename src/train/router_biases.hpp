#pragma once

#include <functional>
#include <vector>

#include "src/checkpoint/state.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::train {

/// Biases by which routers choose experts (ExpertConfig::router_bias). A bias is a parameter without a gradient: its
/// master, in the accumulation type, is stored in checkpoints and sharded like any other. Each rank also has the biases
/// of all layers in host memory. From there they reach the layers, without rounding to a training type of 16 bits.
class RouterBiases {
 public:
  /// Returns this rank's range of the master of parameter i (ParameterBuffer::shard_range), flat.
  using Masters = std::function<TensorView(std::size_t)>;

  explicit RouterBiases(ParallelModel& model);

  /// Takes the biases from the masters, after initialisation or a load. Collective over the grid.
  void read(const Masters& masters);
  /// bias_e += rate sign(mean load - load_e), load_e = ExpertLoad::chosen of a global batch, which all ranks know; also
  /// in the masters. All ranks compute the same bits.
  void update(const std::vector<model::ExpertLoad>& loads, const Masters& masters);

 private:
  /// The bias of a layer on this rank.
  struct Own {
    std::size_t parameter = 0;
    int layer = 0;
  };
  std::span<double> of_layer(int layer);
  /// This rank's range of the biases of `own`, in host memory.
  std::span<double> range_of(const Own& own, const checkpoint::StateTensor& piece);
  checkpoint::StateTensor piece_of(const Own& own, const Masters& masters);

  ParallelModel& model_;
  std::vector<Own> own_;
  std::vector<double> biases_;  // [layers of the model, experts]
};

}  // namespace trireme::train
