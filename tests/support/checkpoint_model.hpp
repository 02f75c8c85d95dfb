#pragma once

#include <string>
#include <vector>

#include "src/checkpoint/load.hpp"
#include "src/checkpoint/save.hpp"
#include "src/comm/communicator.hpp"
#include "tests/support/random_slices.hpp"

namespace trireme::test {

/// A small model, every tensor divided at random, that one rank or all ranks together save and load.
class CutModel {
 public:
  explicit CutModel(std::uint64_t seed) {
    Random random(seed);
    const std::pair<const char*, Shape> tensors[] = {{"model/h.0.ln_1.weight", {13}},
                                                     {"model/wte", {17, 12}},
                                                     {"adamw_m/h.0.attn.qkv.weight", {3, 6, 2, 5}},
                                                     {"model/scale", {}}};
    for (const auto& [name, shape] : tensors) tensors_.emplace_back(name, shape, random_partition(random, shape));
  }

  /// Distributes the slices to the ranks round-robin.
  std::vector<checkpoint::StateTensor> states(int rank = 0, int size = 1) {
    std::vector<checkpoint::StateTensor> states;
    int slice = 0;
    for (SlicedTensor& tensor : tensors_) {
      for (std::size_t i = 0; i < tensor.slices.size(); ++i) {
        if (slice++ % size == rank) states.push_back(tensor.state(i));
      }
    }
    return states;
  }
  void fill(std::uint64_t version) {
    for (SlicedTensor& tensor : tensors_) tensor.fill(version);
  }
  /// Returns whether the slices of this rank hold that version.
  bool holds(std::uint64_t version, int rank = 0, int size = 1) const {
    int slice = 0;
    bool all = true;
    for (const SlicedTensor& tensor : tensors_) {
      SlicedTensor expected(tensor.name, tensor.shape, tensor.slices);
      expected.fill(version);
      for (std::size_t i = 0; i < tensor.slices.size(); ++i) {
        if (slice++ % size == rank) all = all && expected.data[i] == tensor.data[i];
      }
    }
    return all;
  }

  std::vector<SlicedTensor>& tensors() { return tensors_; }

 private:
  std::vector<SlicedTensor> tensors_;
};

/// Saves the model, filled with `version` and divided by it too.
inline void save_version(checkpoint::Store& store, Communicator& world, std::int64_t step, std::uint64_t version,
                         int keep_last = 0) {
  CutModel model(version);
  model.fill(version);
  checkpoint::save(store, world,
                   {step, {{"version", std::to_string(version)}}, {{"tokenizer", std::string("a\0b", 3)}}},
                   model.states(world.rank(), world.size()), {keep_last});
}

/// Loads a version, by name or the latest one, into another division, and returns it. Throws if the tensors differ from
/// it.
inline std::uint64_t load_version(checkpoint::Store& store, Communicator& world, const std::string& name = {}) {
  const auto step = checkpoint::open_checkpoint(store, world, name);
  const checkpoint::RunDescription description = checkpoint::read_description(*step);
  const auto version = static_cast<std::uint64_t>(description.attributes.get<std::int64_t>("version"));
  CutModel model(version + 1000);
  checkpoint::load(*step, world, model.states(world.rank(), world.size()));
  if (!model.holds(version, world.rank(), world.size()) || description.blobs.at("tokenizer").size() != 3) {
    throw std::runtime_error("not what was saved as version " + std::to_string(version));
  }
  return version;
}

/// The step number of a version: 1, 1, 2, 3, 3, 4, 5, 5 ... so that steps are added, replaced and removed.
inline std::int64_t step_of(std::uint64_t version) { return static_cast<std::int64_t>((2 * version + 1) / 3); }

}  // namespace trireme::test
