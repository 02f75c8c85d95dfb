#include "src/parallel/grid/process_grid.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdint>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::parallel {
namespace {

/// Coordinates that ranks have in common.
constexpr unsigned same_tensor = 1, same_context = 2, same_data = 4, same_pipeline = 8, same_expert = 16,
                   same_expert_data = 32, same_expert_tensor = 64;

/// Name of a group, and the coordinates that its ranks have in common.
struct GroupRow {
  const char* name;
  unsigned common;
};
constexpr GroupRow group_rows[] = {  // by GroupKind
    {"tensor", same_context | same_data | same_pipeline},
    {"pipeline", same_tensor | same_context | same_data},
    {"context", same_tensor | same_data | same_pipeline},
    {"data", same_tensor | same_context | same_pipeline},
    {"gradient", same_tensor | same_pipeline},
    {"model", same_context | same_data},
    {"embedding", same_tensor | same_context | same_data},
    {"expert", same_pipeline | same_expert_data},  // and with folded experts different expert tensor ranks
    {"expert_gradient", same_pipeline | same_expert | same_expert_tensor},
    {"expert_model", same_expert_data},
    {"expert_tensor", same_pipeline | same_expert | same_expert_data}};

/// Grids of exactly `world_size` ranks, nearest to the requested one first: "<tp> 2 <pp> 2 (data 3), <tp> 2 <pp> 1
/// (data 6)". With a `context_size` above 1 each also names <cp>.
std::string nearest_grids(int world_size, int tensor_size, int pipeline_size, int context_size) {
  struct Candidate {
    double distance;
    int tensor;
    int pipeline;
    int context;
  };
  const auto octaves = [](int size, int wanted) { return std::abs(std::log2(static_cast<double>(size) / wanted)); };
  std::vector<Candidate> candidates;
  for (int tensor = 1; tensor <= world_size; ++tensor) {
    if (world_size % tensor != 0) continue;
    for (int pipeline = 1; pipeline <= world_size / tensor; ++pipeline) {
      if (world_size / tensor % pipeline != 0) continue;
      const int rest = world_size / tensor / pipeline;
      for (int context = 1; context <= (context_size == 1 ? 1 : rest); ++context) {
        if (rest % context != 0) continue;
        const double distance =
            octaves(tensor, tensor_size) + octaves(pipeline, pipeline_size) + octaves(context, context_size);
        candidates.push_back({distance, tensor, pipeline, context});
      }
    }
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::distance);
  candidates.resize(std::min<std::size_t>(candidates.size(), 4));
  std::vector<std::string> texts;
  for (const Candidate& grid : candidates) {
    texts.push_back(fmt::format("<tp> {} <pp> {}{} (data {})", grid.tensor, grid.pipeline,
                                context_size == 1 ? "" : fmt::format(" <cp> {}", grid.context),
                                world_size / grid.tensor / grid.pipeline / grid.context));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

std::vector<int> divisors(int n) {
  std::vector<int> result;
  for (int i = 1; i <= n; ++i) {
    if (n % i == 0) result.push_back(i);
  }
  return result;
}

const char* name_of(GroupKind kind) { return group_rows[static_cast<std::size_t>(kind)].name; }

ProcessGrid::ProcessGrid(int world_size, int tensor_size, int pipeline_size, int context_size, int data_size,
                         int expert_size, int expert_tensor_size)
    : tensor_size_(tensor_size),
      context_size_(context_size),
      data_size_(data_size),
      pipeline_size_(pipeline_size),
      expert_size_(expert_size),
      expert_tensor_size_(expert_tensor_size == 0 ? tensor_size : expert_tensor_size) {
  TRIREME_CHECK(
      world_size >= 1 && tensor_size >= 1 && pipeline_size >= 1 && context_size >= 1 && data_size >= 0, ConfigError,
      "a grid of {} ranks cannot have tensor size {}, pipeline size {}, context size {} and data size {}: each is at "
      "least 1",
      world_size, tensor_size, pipeline_size, context_size, data_size);
  constexpr std::int64_t limit = std::int64_t{1} << 60;
  const std::int64_t stage_ranks = std::int64_t{tensor_size} * pipeline_size;
  const std::int64_t replica_size = stage_ranks <= limit / context_size ? stage_ranks * context_size : limit;
  if (data_size_ == 0) {
    data_size_ = static_cast<int>(std::max<std::int64_t>(1, world_size / replica_size));
  }
  const std::int64_t wanted = replica_size <= limit / data_size_ ? replica_size * data_size_ : limit;
  if (wanted == world_size) {
    check_experts();
    return;
  }
  std::string counts = std::to_string(wanted);
  if (data_size == 0 && replica_size < world_size) counts += " or " + std::to_string(wanted + replica_size);
  throw ConfigError(
      "{} ranks do not make a grid of tensor size {} (<tp>) x pipeline size {} (<pp>){}{} = {} ranks{}. Start {} "
      "ranks, or choose a grid for {} into which the model divides: {}",
      world_size, tensor_size, pipeline_size,
      context_size != 1 ? fmt::format(" x context size {} (<cp>)", context_size) : "",
      data_size != 0 ? fmt::format(" x data size {}", data_size) : "", data_size != 0 ? wanted : replica_size,
      data_size != 0 ? "" : " a replica", counts, world_size,
      nearest_grids(world_size, tensor_size, pipeline_size, context_size));
}

void ProcessGrid::check_experts() const {
  const std::string ranks = fmt::format("context size {} x data size {}", context_size_, data_size_);
  if (!folds_experts()) {
    TRIREME_CHECK(expert_size_ >= 1 && gradient_size() % expert_size_ == 0, ConfigError,
                  "expert size {} (<ep>) does not divide the {} of {}. Try one of {} that divides <num_experts>, or "
                  "start more ranks",
                  expert_size_, counted(gradient_size(), "rank"), ranks, fmt::join(divisors(gradient_size()), ", "));
    return;
  }
  const std::string stage =
      fmt::format("the {} of tensor size {} x {}", counted(stage_size(), "rank"), tensor_size_, ranks);
  TRIREME_CHECK(
      expert_tensor_size_ >= 1 && stage_size() % expert_tensor_size_ == 0, ConfigError,
      "expert tensor size {} (<expert_tensor_parallel_size>) does not divide {}. Try one of {} that divides the "
      "width of experts",
      expert_tensor_size_, stage, fmt::join(divisors(stage_size()), ", "));
  const int rest = stage_size() / expert_tensor_size_;
  TRIREME_CHECK(expert_size_ >= 1 && rest % expert_size_ == 0, ConfigError,
                "expert size {} (<ep>) x expert tensor size {} does not divide {}. Try <ep> {} that divides "
                "<num_experts>",
                expert_size_, expert_tensor_size_, stage, fmt::join(divisors(rest), ", "));
}

GridPosition ProcessGrid::position(int rank) const {
  const int replica = rank / tensor_size_ / context_size_;
  return {rank % tensor_size_, rank / tensor_size_ % context_size_, replica % data_size_, replica / data_size_};
}

int ProcessGrid::rank(const GridPosition& position) const {
  return position.tensor +
         tensor_size_ * (position.context + context_size_ * (position.data + data_size_ * position.pipeline));
}

std::vector<int> ProcessGrid::group(GroupKind kind, int rank) const {
  const GridPosition own = position(rank);
  unsigned common = group_rows[static_cast<std::size_t>(kind)].common;
  if (kind == GroupKind::expert && !folds_experts()) common |= same_expert_tensor;
  const auto fits = [&](const GridPosition& at) {
    return has(kind) && (kind != GroupKind::embedding || at.pipeline == 0 || at.pipeline == pipeline_size_ - 1);
  };
  if (!fits(own)) return {};
  std::vector<int> ranks;
  for (int other = 0; other < world_size(); ++other) {
    const GridPosition at = position(other);
    const unsigned equal = (at.tensor == own.tensor ? same_tensor : 0) |
                           (at.context == own.context ? same_context : 0) | (at.data == own.data ? same_data : 0) |
                           (at.pipeline == own.pipeline ? same_pipeline : 0) |
                           (expert_tensor_rank(other) == expert_tensor_rank(rank) ? same_expert_tensor : 0) |
                           (expert_rank(other) == expert_rank(rank) ? same_expert : 0) |
                           (expert_gradient_rank(other) == expert_gradient_rank(rank) ? same_expert_data : 0);
    if ((equal & common) == common && fits(at)) ranks.push_back(other);
  }
  return ranks;
}

std::vector<std::vector<int>> ProcessGrid::groups(GroupKind kind) const {
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < world_size(); ++rank) {
    std::vector<int> ranks = group(kind, rank);
    if (!ranks.empty() && ranks.front() == rank) all.push_back(std::move(ranks));
  }
  return all;
}

std::string ProcessGrid::describe(int rank) const {
  const GridPosition at = position(rank);
  const std::string context = context_size_ == 1 ? "" : fmt::format("context {} of {}, ", at.context, context_size_);
  std::string expert = expert_size_ == 1 ? "" : fmt::format("expert {} of {}, ", expert_rank(rank), expert_size_);
  if (folds_experts()) {
    expert += fmt::format("expert tensor {} of {}, ", expert_tensor_rank(rank), expert_tensor_size_);
  }
  return fmt::format("rank {}: tensor {} of {}, {}data {} of {}, {}pipeline {} of {}", rank, at.tensor, tensor_size_,
                     context, at.data, data_size_, expert, at.pipeline, pipeline_size_);
}

std::string ProcessGrid::diagram() const {
  constexpr int max_columns = 8;
  constexpr int max_rows = 16;
  // The last replica and stage are always drawn, after "..." if others are left out.
  const auto drawn = [](int size, int limit) {
    std::vector<int> indices;  // -1 for "..."
    for (int i = 0; i < std::min(size, limit); ++i) indices.push_back(i);
    if (size > limit) {
      indices[static_cast<std::size_t>(limit - 2)] = -1;
      indices.back() = size - 1;
    }
    return indices;
  };
  const std::vector<int> columns = drawn(data_size_, max_columns);
  const std::vector<int> rows = drawn(pipeline_size_, max_rows);
  const auto cell = [&](int stage, int replica) -> std::string {
    if (stage < 0 || replica < 0) return "...";
    const int first = rank({.data = replica, .pipeline = stage}), ranks = tensor_size_ * context_size_;
    return ranks == 1 ? std::to_string(first) : fmt::format("{}-{}", first, first + ranks - 1);
  };
  const auto heading = [](const char* what, int index) {
    return index < 0 ? std::string("...") : fmt::format("{} {}", what, index);
  };
  std::size_t width = cell(pipeline_size_ - 1, data_size_ - 1).size();
  width = std::max(width, heading("replica", data_size_ - 1).size());

  const std::string context = context_size_ == 1 ? "" : fmt::format("context {} x ", context_size_);
  std::string experts = expert_size_ == 1 ? "" : fmt::format("; experts over {} ranks", expert_size_);
  if (folds_experts()) {
    experts += fmt::format("; each expert {}", expert_tensor_size_ == 1
                                                   ? "complete on one"
                                                   : fmt::format("split over {} ranks", expert_tensor_size_));
  }
  std::string text = fmt::format("{} ranks = tensor {} x {}data {} x pipeline {}{}\n", world_size(), tensor_size_,
                                 context, data_size_, pipeline_size_, experts);
  text += fmt::format("{:10}", "");
  for (const int replica : columns) text += fmt::format("  {:>{}}", heading("replica", replica), width);
  for (const int stage : rows) {
    text += fmt::format("\n{:<10}", heading("stage", stage));
    for (const int replica : columns) text += fmt::format("  {:>{}}", cell(stage, replica), width);
  }
  return text + "\n";
}

}  // namespace trireme::parallel
