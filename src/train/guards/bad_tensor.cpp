#include "src/train/guards/bad_tensor.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/comm/host_collectives.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "src/train/guards/not_finite.hpp"
#include "src/train/guards/rank_list.hpp"

namespace trireme::train {
namespace {

constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();

/// "h.3.mlp.fc.weight in layer 3".
std::string named(const std::string& parameter) {
  if (!parameter.starts_with("h.")) return parameter;
  return fmt::format("{} in layer {}", parameter, parameter.substr(2, parameter.find('.', 2) - 2));
}

std::string counted(std::int64_t bad, std::int64_t elements) {
  return fmt::format("{} of {} elements that are not finite", bad, elements);
}

/// Description in parts, each collective; empty if a part finds nothing.
class Search {
 public:
  Search(ParallelModel& model, const StepProbe* probe, const model::LossSums& losses)
      : model_(model),
        world_(model.world()),
        probe_(probe),
        losses_(losses),
        all_(model::all_parameters(model.config())),
        sum_(model.backend(), DType::fp64, {1}) {}

  std::string weights() {
    std::int64_t first = none, bad = 0, elements = 0;
    for (const parallel::Parameter& parameter : model_.parameters().parameters()) {
      const std::int64_t index = index_of(parameter);
      if (index >= first) continue;
      const std::int64_t count = count_not_finite(model_.backend(), parameter.value, sum_);
      if (count == 0) continue;
      first = index;
      bad = count;
      elements = parameter.value.numel();
    }
    const std::int64_t found = least_of_ranks(world_, first);
    if (found == none) return "";
    const parallel::Parameter& parameter = all_[static_cast<std::size_t>(found)];
    const bool here = first == found;
    return fmt::format("before the step the weight {} had {} on {}", named(parameter.name),
                       // Elements of a rank's part, with the padding of the vocabulary.
                       counted(-least_of_ranks(world_, here ? -bad : 0), -least_of_ranks(world_, here ? -elements : 0)),
                       ranks(here));
  }

  std::string outputs() {
    if (probe_ == nullptr) return "";
    const auto& output = probe_->bad_output();
    const std::int64_t mine = output ? output->layer : none, found = least_of_ranks(world_, mine);
    if (found == none) return "";
    const bool here = mine == found;
    return fmt::format("the output of {} has {}, on {}",
                       found < 0 ? "the embeddings" : fmt::format("h.{} (layer {})", found, found),
                       counted(-least_of_ranks(world_, here ? -output->bad : 0),
                               -least_of_ranks(world_, here ? -output->elements : 0)),
                       ranks(here));
  }

  std::string losses() {
    const std::vector<int> bad = ranks_with(world_, !std::isfinite(losses_.tokens + losses_.samples + losses_.ahead));
    if (bad.empty()) return "";
    return fmt::format("the losses of {} are not finite, while all weights {}", rank_list(world_, bad),
                       probe_ != nullptr ? "and the outputs of all layers are" : "are");
  }

  std::string gradients() {
    const parallel::ParameterBuffer& buffer = model_.parameters();
    const std::vector<parallel::Parameter>& mine = buffer.parameters();
    std::vector<std::int64_t> bad(all_.size()), held(all_.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const TensorView gradient = buffer.shard_gradient(i);
      if (gradient.numel() == 0) continue;
      const auto index = static_cast<std::size_t>(index_of(mine[i]));
      held[index] = count_not_finite(model_.backend(), gradient, sum_);
      // Each element counts once, as in the gradient's norm.
      const parallel::GradientGroup& group = model_.group_of(mine[i]);
      const bool counts =
          mine[i].counts_here(group.tensor.rank()) && (buffer.is_sharded() || group.gradient.rank() == 0);
      if (counts) bad[index] = held[index];
    }
    all_reduce_numbers(world_, bad, ReduceOp::sum);
    const auto is_bad = [](std::int64_t count) { return count > 0; };
    const auto tensors = std::ranges::count_if(bad, is_bad);
    if (tensors == 0) return "";
    const auto first = static_cast<std::size_t>(std::ranges::find_if(bad, is_bad) - bad.begin());
    // Backward goes from the last tensor to the first.
    auto last = bad.size() - 1;
    while (!is_bad(bad[last])) --last;
    const parallel::Parameter& parameter = all_[last];
    std::string text = fmt::format("the gradient of {} has {}, from {}", named(parameter.name),
                                   counted(bad[last], parameter.shape.numel()), ranks_of_gradient(last, held[last]));
    if (tensors > 1) {
      text += fmt::format("; backward computed it before {} more such gradients, in the model's order from {} on",
                          tensors - 1, named(all_[first].name));
    }
    return text;
  }

 private:
  /// Position of a rank's parameter in the model's order.
  std::int64_t index_of(const parallel::Parameter& parameter) const {
    return std::ranges::find(all_, parameter.name, &parallel::Parameter::name) - all_.begin();
  }
  std::string ranks(bool here) { return rank_list(world_, ranks_with(world_, here)); }

  /// The ranks whose own gradients were not finite before the reduction. If no probe saw any, those that hold some of
  /// the `held` elements.
  std::string ranks_of_gradient(std::size_t index, std::int64_t held) {
    const parallel::ParameterBuffer& buffer = model_.parameters();
    bool here = false;
    if (probe_ != nullptr) {
      const std::vector<double> sums = probe_->sums();
      for (std::size_t i = 0; i < buffer.parameters().size(); ++i) {
        if (index_of(buffer.parameters()[i]) != static_cast<std::int64_t>(index)) continue;
        here = !std::isfinite(sums[probe_->index_of(buffer.layout().bucket_of(i))]);
      }
    }
    const std::vector<int> own = ranks_with(world_, here), holders = ranks_with(world_, held > 0);
    return rank_list(world_, own.empty() ? holders : own);
  }

  ParallelModel& model_;
  Communicator& world_;
  const StepProbe* probe_;
  model::LossSums losses_;
  std::vector<parallel::Parameter> all_;
  Tensor sum_;
};

}  // namespace

std::string describe_bad_tensor(ParallelModel& model, const StepProbe* probe, const model::LossSums& losses) {
  Search search(model, probe, losses);
  for (const auto part : {&Search::weights, &Search::outputs, &Search::losses, &Search::gradients}) {
    std::string text = (search.*part)();
    if (!text.empty()) return text;
  }
  return "all weights and gradients are finite, but the sum of their squares is not";
}

}  // namespace trireme::train
