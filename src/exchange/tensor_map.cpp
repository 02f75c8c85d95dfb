#include "src/exchange/tensor_map.hpp"

#include <algorithm>

#include "src/base/check.hpp"
#include "src/model/stage/model_parameters.hpp"

namespace trireme::exchange {

std::string layer_prefix(int layer) { return fmt::format("h.{}", layer); }

TensorMapBuilder::TensorMapBuilder(const model::ModelConfig& config) : config_(config) {
  for (const parallel::Parameter& parameter : model::all_parameters(config)) {
    index_.emplace(parameter.name, map_.parameters.size());
    MappedParameter mapped;
    mapped.name = parameter.name;
    mapped.shape = parameter.shape;
    mapped.role = parameter.role;
    const bool is_vector = parameter.shape.rank() < 2 || parameter.role == parallel::ParameterRole::bias;
    mapped.is_vector = is_vector;
    mapped.columns = is_vector ? 1 : parameter.shape.back();
    mapped.offset = parameter.role == parallel::ParameterRole::centred_norm_weight ? 1 : 0;
    map_.parameters.push_back(std::move(mapped));
  }
}

std::size_t TensorMapBuilder::tensor(MappedTensor tensor) {
  map_.tensors.push_back(std::move(tensor));
  return map_.tensors.size() - 1;
}

MappedParameter& TensorMapBuilder::parameter(const std::string& name) {
  const auto found = index_.find(name);
  TRIREME_CHECK(found != index_.end(), ShapeError, "the model has no parameter {} to map", name);
  return map_.parameters[found->second];
}

void TensorMapBuilder::run(const std::string& name, const RowRun& run) { parameter(name).runs.push_back(run); }

void TensorMapBuilder::rows(const std::string& name, std::int64_t first, std::int64_t count,
                            const std::string& foreign) {
  const Shape shape = parameter(name).shape_of(count);
  run(name, {.first = first, .count = count, .tensor = tensor({.name = foreign, .shape = shape})});
}

void TensorMapBuilder::same(const std::string& name, const std::string& foreign) {
  rows(name, 0, parameter(name).rows(), foreign);
}

void TensorMapBuilder::transposed(const std::string& name, const std::string& foreign) {
  const MappedParameter& mapped = parameter(name);
  const std::int64_t count = mapped.rows();
  run(name,
      {.count = count, .tensor = tensor({.name = foreign, .shape = {mapped.columns, count}, .transposed = true})});
}

void TensorMapBuilder::tokens(const std::string& name, const std::string& foreign, const TokenRows& rows,
                              std::vector<std::string> copies, std::optional<double> added_value) {
  MappedParameter& mapped = parameter(name);
  const std::int64_t vocabulary = config_.vocabulary;
  const std::int64_t all = rows.all == 0 ? vocabulary : rows.all, used = rows.used == 0 ? all : rows.used;
  TRIREME_CHECK(used >= vocabulary || added_value, ConfigError,
                "the tensors have {} tokens, fewer than the {} of the vocabulary", used, vocabulary);
  const std::int64_t common = std::min(used, vocabulary);
  mapped.added_rows = vocabulary - common;
  mapped.added_value = added_value.value_or(0);
  run(name,
      {.count = common,
       .tensor = tensor(
           {.name = foreign, .shape = mapped.shape_of(all), .padded = all > common, .copies = std::move(copies)})});
}

void TensorMapBuilder::again(const std::string& name, const std::string& foreign) {
  MappedParameter repeated = parameter(name);
  const MappedTensor& first = map_.tensors[repeated.runs.front().tensor];
  const std::size_t copy = tensor({.name = foreign, .shape = first.shape, .transposed = first.transposed});
  for (RowRun& run : repeated.runs) run.tensor = copy;
  map_.parameters.push_back(std::move(repeated));
}

void TensorMapBuilder::initial(const std::string& prefix) {
  for (MappedParameter& mapped : map_.parameters) {
    if (!mapped.name.starts_with(prefix)) continue;
    mapped.is_initial = true;
    mapped.added_rows = mapped.rows();
  }
}

void TensorMapBuilder::heads(const std::string& name, std::int64_t first_head, std::int64_t count,
                             const std::string& foreign, RotaryLayout layout) {
  const std::int64_t d = config_.head_dim();
  if (layout == RotaryLayout::halves) return rows(name, first_head * d, count * d, foreign);
  const std::size_t index = tensor({.name = foreign, .shape = parameter(name).shape_of(count * d)});
  for (std::int64_t i = 0; i < count; ++i) {
    head(name, {.first = (first_head + i) * d, .count = d, .tensor = index, .foreign_first = i * d}, layout);
  }
}

void TensorMapBuilder::rotated(const std::string& name, const std::string& foreign, RotaryLayout layout) {
  heads(name, 0, parameter(name).rows() / config_.head_dim(), foreign, layout);
}

void TensorMapBuilder::head(const std::string& name, RowRun rows, RotaryLayout layout) {
  if (layout == RotaryLayout::halves) return run(name, rows);
  rows.count /= 2;
  RowRun second = rows;
  second.first += rows.count;
  second.foreign_first += rows.foreign_step;
  rows.foreign_step = second.foreign_step = 2 * rows.foreign_step;
  run(name, rows);
  run(name, second);
}

void TensorMapBuilder::split_heads(const std::string& prefix, const std::string& suffix, const std::string& queries,
                                   const std::string& keys, const std::string& values, RotaryLayout layout) {
  const std::int64_t a = config_.heads, k = config_.kv_heads();
  if (k == a) {
    const std::string name = prefix + ".qkv." + suffix;
    heads(name, 0, a, queries, layout);
    heads(name, a, a, keys, layout);
    heads(name, 2 * a, a, values, RotaryLayout::halves);
  } else {
    heads(prefix + ".q." + suffix, 0, a, queries, layout);
    heads(prefix + ".kv." + suffix, 0, k, keys, layout);
    heads(prefix + ".kv." + suffix, k, k, values, RotaryLayout::halves);
  }
}

void TensorMapBuilder::split_gate(const std::string& name, const std::string& gate, const std::string& up) {
  const std::int64_t half = parameter(name).rows() / 2;
  rows(name, 0, half, gate);
  rows(name, half, half, up);
}

TensorMap TensorMapBuilder::finish() {
  std::vector<std::int64_t> covered(map_.tensors.size());
  for (MappedParameter& mapped : map_.parameters) {
    std::ranges::sort(mapped.runs, {}, &RowRun::first);
    std::int64_t next = 0;
    for (const RowRun& run : mapped.runs) {
      const MappedTensor& tensor = map_.tensors[run.tensor];
      TRIREME_CHECK(run.first == next && run.count > 0 && tensor.columns() == mapped.columns &&
                        (!tensor.transposed || run.count == mapped.rows()) &&
                        run.foreign_first + (run.count - 1) * run.foreign_step < tensor.rows(),
                    ShapeError, "rows {} to {} of the parameter {} are not rows of the tensor {}", run.first,
                    run.first + run.count, mapped.name, tensor.name);
      next += run.count;
      covered[run.tensor] += run.count;
    }
    TRIREME_CHECK(next + mapped.added_rows == mapped.rows(), ShapeError,
                  "the map has {} of {} rows of the parameter {}", next, mapped.rows(), mapped.name);
  }
  for (std::size_t i = 0; i < covered.size(); ++i) {
    const MappedTensor& tensor = map_.tensors[i];
    TRIREME_CHECK(covered[i] == tensor.rows() || (tensor.padded && covered[i] < tensor.rows()), ShapeError,
                  "the map has {} of {} rows of the tensor {}", covered[i], tensor.rows(), tensor.name);
  }
  return std::move(map_);
}

}  // namespace trireme::exchange
