#include "src/train/guards/replica_check.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "src/comm/host_collectives.hpp"
#include "src/train/guards/not_finite.hpp"
#include "src/train/guards/rank_list.hpp"

namespace trireme::train {
namespace {

/// A tensor that is not the same on all ranks of a group.
struct Difference {
  std::size_t tensor = 0;
  std::size_t tensors = 0;        ///< that differ
  std::vector<bool> is_minority;  ///< by rank of the group; none if no value is the most frequent
};

/// Compares `all` [ranks, tensors]; no tensors where all ranks have the same.
Difference difference_of(const std::vector<std::int64_t>& all, std::size_t ranks) {
  const std::size_t tensors = all.size() / ranks;
  Difference difference;
  for (std::size_t i = tensors; i-- > 0;) {
    std::map<std::int64_t, std::size_t> counts;
    for (std::size_t rank = 0; rank < ranks; ++rank) ++counts[all[rank * tensors + i]];
    if (counts.size() == 1) continue;
    const auto most = std::ranges::max_element(counts, {}, [](const auto& count) { return count.second; });
    const bool is_unique =
        std::ranges::count_if(counts, [&](const auto& count) { return count.second == most->second; }) == 1;
    difference.tensor = i;
    ++difference.tensors;
    difference.is_minority.assign(ranks, false);
    for (std::size_t rank = 0; is_unique && rank < ranks; ++rank) {
      difference.is_minority[rank] = all[rank * tensors + i] != most->first;
    }
  }
  return difference;
}

}  // namespace

ReplicaCheck::ReplicaCheck(ParallelModel& model, const optim::Optimizer& optimizer)
    : model_(model), optimizer_(optimizer) {
  Communicator& world = model.world();
  for (const auto kind : {parallel::GroupKind::gradient, parallel::GroupKind::expert_gradient}) {
    if (!model.grid().has(kind)) continue;
    const int first = model.grid().group(kind, world.rank()).front();
    replicas_.push_back({world.split(first, world.rank(), "replicas"), first});
  }
}

std::vector<ReplicaCheck::Hash> ReplicaCheck::hashes(int gradient_group) const {
  std::vector<Hash> hashes;
  const auto& parameters = model_.parameters().parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].gradient_group != gradient_group) continue;
    const std::string& name = parameters[i].name;
    hashes.push_back({"the weight " + name, hash_of_elements(model_.backend(), parameters[i].value, 0)});
    if (model_.parameters().layout().home_of(i).shards > 1) continue;
    for (const optim::Optimizer::State& state : optimizer_.state(i)) {
      if (state.data.data() == parameters[i].value.data()) continue;
      hashes.push_back({state.kind + "/" + name, hash_of_elements(model_.backend(), state.data, 0)});
    }
  }
  return hashes;
}

void ReplicaCheck::check(std::int64_t iteration) const {
  model_.data_parallel().wait_for_parameters();
  for (int group = 0; group < static_cast<int>(replicas_.size()); ++group) check(iteration, group);
}

void ReplicaCheck::check(std::int64_t iteration, int gradient_group) const {
  const Replicas& replicas = replicas_[static_cast<std::size_t>(gradient_group)];
  const auto ranks = static_cast<std::size_t>(replicas.ranks->size());
  const std::vector<Hash> mine = hashes(gradient_group);
  std::vector<std::int64_t> own, all;
  for (const Hash& hash : mine) own.push_back(static_cast<std::int64_t>(hash.value));
  if (!mine.empty()) all = all_gather_numbers<std::int64_t>(*replicas.ranks, own);
  const Difference difference = difference_of(all, ranks);

  // The first group with a difference is reported.
  Communicator& world = model_.world();
  constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  const std::int64_t first = least_of_ranks(world, difference.tensors > 0 ? replicas.first : none);
  if (first == none) return;
  const bool here = difference.tensors > 0 && replicas.first == first;
  const auto own_rank = static_cast<std::size_t>(replicas.ranks->rank());
  const bool is_minority = here && difference.is_minority[own_rank];
  std::string tensor;
  if (here) {
    tensor = mine[difference.tensor].name;
    if (difference.tensors > 1) tensor += fmt::format(" and {} more tensors", difference.tensors - 1);
  }
  tensor = broadcast_text(world, tensor, static_cast<int>(first));
  const std::vector<int> minority = ranks_with(world, is_minority), others = ranks_with(world, here && !is_minority);
  const std::string whose =
      minority.empty()
          ? fmt::format("differ among {}, of which none is in the majority", rank_list(world, others))
          : fmt::format("on {} differ from those on {}", rank_list(world, minority), rank_list(world, others));
  report_nodes_of(world, minority);
  throw MachineError(
      "the replicas of a model are not the same after iteration {}: {} {}. A machine has computed or kept wrong "
      "numbers. "
      "Nothing was saved since. Test its host with 'trireme selftest', exclude it, and run the same command again with "
      "<load>",
      iteration, tensor, whose);
}

}  // namespace trireme::train
