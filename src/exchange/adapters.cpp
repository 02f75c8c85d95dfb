#include "src/exchange/adapters.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "src/base/check.hpp"
#include "src/exchange/elements.hpp"

namespace trireme::exchange {
namespace {

constexpr std::string_view weight = ".weight", prefix = "base_model.model.";
constexpr std::size_t most_listed = 20;

/// Name without ".weight"; empty for other parameters and tensors.
std::string layer_of(std::string_view name) {
  return name.ends_with(weight) ? std::string(name.substr(0, name.size() - weight.size())) : std::string();
}

std::string last_part(const std::string& layer) { return layer.substr(layer.rfind('.') + 1); }

bool is_expert(const std::string& layer) { return layer.find(".mlp.experts.") != layer.npos; }

/// The tensors that have rows of a parameter, in their order.
std::vector<std::size_t> tensors_of(const MappedParameter& parameter) {
  std::vector<std::size_t> tensors;
  for (const RowRun& run : parameter.runs) {
    if (std::ranges::find(tensors, run.tensor) == tensors.end()) tensors.push_back(run.tensor);
  }
  return tensors;
}

/// Calls visit(parameter, layer) for each parameter whose weight the adapters adapt.
template <class Visit>
void for_each_adapted(const TensorMap& map, const model::LowRankAdapters& adapters, const Visit& visit) {
  for (const MappedParameter& parameter : map.parameters) {
    const std::string layer = layer_of(parameter.name);
    if (!layer.empty() && adapters.adapt(layer)) visit(parameter, layer);
  }
}

MappedParameter narrowed(const MappedParameter& parameter, const std::string& layer, std::int64_t rank) {
  MappedParameter b = parameter;
  b.name = layer + ".lora_b.weight";
  b.shape[b.shape.rank() - 1] = rank;
  b.columns = rank;
  b.adapter_rank = 0;
  return b;
}

MappedParameter inputs_of(const MappedParameter& parameter, const std::string& layer, std::int64_t rank) {
  MappedParameter a;
  a.name = layer + ".lora_a.weight";
  a.shape = {rank, parameter.columns};
  a.columns = parameter.columns;
  return a;
}

/// A source, and tensors in memory after its own.
class AdaptedSource final : public TensorSource {
 public:
  explicit AdaptedSource(std::unique_ptr<TensorSource> base) : base_(std::move(base)), tensors_(base_->tensors()) {}

  void add(const std::string& name, const Shape& shape, std::vector<double> elements) {
    tensors_.push_back({name, DType::fp64, shape});
    elements_.push_back(std::move(elements));
  }
  std::string description() const override { return base_->description(); }
  const std::vector<ForeignTensor>& tensors() const override { return tensors_; }
  void read(std::size_t tensor, std::int64_t first, std::span<std::byte> out) override {
    if (tensor < base_->tensors().size()) return base_->read(tensor, first, out);
    std::memcpy(out.data(), elements_[tensor - base_->tensors().size()].data() + first, out.size());
  }
  void prefetch(std::size_t tensor, std::int64_t first, std::int64_t count) override {
    if (tensor < base_->tensors().size()) base_->prefetch(tensor, first, count);
  }

 private:
  std::unique_ptr<TensorSource> base_;
  std::vector<ForeignTensor> tensors_;
  std::vector<std::vector<double>> elements_;
};

/// Adapters of PEFT by the layers that have them.
class PeftTensors {
 public:
  explicit PeftTensors(TensorSource& source) : source_(source) {
    for (std::size_t i = 0; i < source.tensors().size(); ++i) {
      const std::string& name = source.tensors()[i].name;
      constexpr std::string_view part = ".lora_";
      const std::size_t at = name.rfind(part);
      const std::string_view rest = at == name.npos ? "" : std::string_view(name).substr(at + part.size());
      if (name.starts_with(prefix) && (rest == "A.weight" || rest == "B.weight") &&
          is_floating(source.tensors()[i].dtype)) {
        const std::string layer = name.substr(prefix.size(), at - prefix.size());
        (rest.front() == 'A' ? layers_[layer].first : layers_[layer].second) = i + 1;
      } else {
        problems_.push_back(fmt::format("{} is not A or B of an adapter", name));
      }
    }
  }

  /// Returns A and B of a layer [out, in], or nothing.
  std::optional<std::pair<std::vector<double>, std::vector<double>>> take(const std::string& layer, std::int64_t rank,
                                                                          std::int64_t outputs, std::int64_t inputs) {
    const auto found = layers_.find(layer);
    if (found == layers_.end()) return std::nullopt;
    taken_.insert(layer);
    const auto& [a, b] = found->second;
    return std::pair(read(a, layer, "lora_A", {rank, inputs}), read(b, layer, "lora_B", {outputs, rank}));
  }

  /// Throws if there are tensors that were not taken.
  void finish() {
    for (const auto& [layer, tensors] : layers_) {
      if (!taken_.contains(layer))
        problems_.push_back(fmt::format("{} is no linear layer of attention or feed-forward block", layer));
    }
    if (layers_.empty()) problems_.push_back("there are no adapters");
    if (problems_.empty()) return;
    const std::size_t count = problems_.size();
    problems_.resize(std::min(count, most_listed));
    throw DataError("{} does not have adapters of the model: {} differences{}:\n  {}", source_.description(), count,
                    count > most_listed ? ", beginning with" : "", fmt::join(problems_, "\n  "));
  }

 private:
  /// Elements of the tensor before `index`; 0: there is none.
  std::vector<double> read(std::size_t index, const std::string& layer, const char* name, const Shape& shape) {
    if (index == 0) {
      problems_.push_back(fmt::format("{}.{} is missing", layer, name));
      return {};
    }
    const ForeignTensor& tensor = source_.tensors()[index - 1];
    if (tensor.shape != shape) {
      problems_.push_back(
          fmt::format("{} is {} instead of {}", tensor.name, to_string(tensor.shape), to_string(shape)));
      return {};
    }
    std::vector<double> elements(static_cast<std::size_t>(shape.numel()));
    std::vector<std::byte> raw(elements.size() * size_of(tensor.dtype));
    source_.read(index - 1, 0, raw);
    convert(raw.data(), tensor.dtype, reinterpret_cast<std::byte*>(elements.data()), DType::fp64, shape.numel());
    return elements;
  }

  TensorSource& source_;
  std::map<std::string, std::pair<std::size_t, std::size_t>> layers_;  // numbers of A and B, from 1
  std::set<std::string> taken_;
  std::vector<std::string> problems_;
};

/// The adapters of the layers of one weight.
struct Fused {
  std::size_t parameter = 0;  // number in the map
  std::string layer;
  struct Part {
    std::size_t tensor = 0;
    std::size_t block = 0;  // number of its A in `inputs`
    std::vector<double> b;
  };
  std::vector<Part> parts;
  std::vector<std::vector<double>> inputs;  // the different A
};

void add_adapter(AdaptedSource& source, TensorMap& map, const Fused& fused, std::int64_t rank, std::int64_t part_rank) {
  const MappedParameter parameter = map.parameters[fused.parameter];  // the list grows
  std::vector<double> a(static_cast<std::size_t>(rank * parameter.columns));
  std::vector<double> b(static_cast<std::size_t>(parameter.rows() * rank));
  for (std::size_t block = 0; block < fused.inputs.size(); ++block) {
    std::ranges::copy(fused.inputs[block],
                      a.begin() + static_cast<std::int64_t>(block) * part_rank * parameter.columns);
  }
  for (const Fused::Part& part : fused.parts) {
    for (const RowRun& run : parameter.runs) {
      if (run.tensor != part.tensor) continue;
      for (std::int64_t i = 0; i < run.count; ++i) {
        const double* row = part.b.data() + (run.foreign_first + i * run.foreign_step) * part_rank;
        std::copy_n(row, part_rank,
                    b.begin() + (run.first + i) * rank + static_cast<std::int64_t>(part.block) * part_rank);
      }
    }
  }
  const auto add = [&](MappedParameter mapped, std::vector<double> elements) {
    mapped.runs = {{.first = 0, .count = mapped.rows(), .tensor = map.tensors.size()}};
    map.tensors.push_back({.name = mapped.name, .shape = {mapped.rows(), mapped.columns}});
    source.add(mapped.name, map.tensors.back().shape, std::move(elements));
    map.parameters.push_back(std::move(mapped));
  };
  add(inputs_of(parameter, fused.layer, rank), std::move(a));
  add(narrowed(parameter, fused.layer, rank), std::move(b));
}

}  // namespace

void merge_adapters(TensorMap& map, const model::LowRankAdapters& adapters) {
  for (MappedParameter& parameter : map.parameters) {
    const std::string layer = layer_of(parameter.name);
    if (layer.empty() || !adapters.adapt(layer)) continue;
    parameter.adapter_rank = adapters.rank;
    parameter.adapter_scale = adapters.scale();
  }
}

TensorMap peft_map(const TensorMap& map, const model::LowRankAdapters& adapters, PeftAdapters& peft) {
  TensorMap result;
  std::map<std::size_t, std::pair<std::size_t, std::int64_t>> narrow;  // new tensor and rows of each adapted one
  std::vector<std::string> layers;
  peft = {};
  peft.adapters = adapters;
  std::set<std::string> of_experts;
  for_each_adapted(map, adapters, [&](const MappedParameter& parameter, const std::string& layer) {
    MappedParameter a = inputs_of(parameter, layer, adapters.rank), b = narrowed(parameter, layer, adapters.rank);
    for (const std::size_t i : tensors_of(parameter)) {
      const MappedTensor& tensor = map.tensors[i];
      peft.is_transposed = peft.is_transposed || tensor.transposed;
      TRIREME_CHECK(!narrow.contains(i), ConfigError,
                    "{}: PEFT has one adapter of this tensor, this model one for each of its parts, such as queries "
                    "and keys: without <lora_adapter> they are merged",
                    tensor.name);
      layers.push_back(layer_of(tensor.name));
      if (is_expert(layer)) of_experts.insert(last_part(layers.back()));
      const std::string name(std::string(prefix) + layers.back());
      a.runs.push_back({.first = 0, .count = adapters.rank, .tensor = result.tensors.size()});
      result.tensors.push_back({.name = name + ".lora_A.weight", .shape = a.shape});
      narrow[i] = {result.tensors.size(), 0};
      result.tensors.push_back({.name = name + ".lora_B.weight", .shape = {tensor.rows(), adapters.rank}});
    }
    for (RowRun& run : b.runs) {
      auto& [index, rows] = narrow[run.tensor];
      rows += run.count;
      run.tensor = index;
    }
    result.parameters.push_back(std::move(a));
    result.parameters.push_back(std::move(b));
  });
  for (const auto& [tensor, new_and_rows] : narrow) {
    TRIREME_CHECK(new_and_rows.second == map.tensors[tensor].rows(), ConfigError,
                  "{}: PEFT has an adapter of the entire tensor, this model of a part: without <lora_adapter> it is "
                  "merged",
                  map.tensors[tensor].name);
  }
  // PEFT adapts all layers whose names end like these.
  std::set<std::string> ends, full(layers.begin(), layers.end());
  for (const std::string& layer : layers) ends.insert(last_part(layer));
  const bool are_unique = std::ranges::all_of(map.tensors, [&](const MappedTensor& tensor) {
    const std::string layer = layer_of(tensor.name);
    return layer.empty() || tensor.shape.rank() < 2 || full.contains(layer) || !ends.contains(last_part(layer));
  });
  for_each_adapted(map, adapters, [&](const MappedParameter& parameter, const std::string& layer) {
    const std::string theirs = layer_of(map.tensors[parameter.runs.front().tensor].name);
    if (!is_expert(layer) && of_experts.contains(last_part(theirs))) peft.beside_experts = theirs;
  });
  const std::set<std::string>& named = are_unique ? ends : full;
  peft.modules.assign(named.begin(), named.end());
  return result;
}

std::unique_ptr<TensorSource> with_adapters(std::unique_ptr<TensorSource> base, TensorSource& peft,
                                            const model::LowRankAdapters& adapters, TensorMap& map,
                                            model::ModelConfig& config) {
  PeftTensors tensors(peft);
  model::LowRankAdapters every = adapters;
  every.targets.fill(true);
  std::vector<Fused> all;
  std::size_t blocks = 1;
  for_each_adapted(map, every, [&](const MappedParameter& parameter, const std::string& layer) {
    const auto number = static_cast<std::size_t>(&parameter - map.parameters.data());
    Fused& fused = all.emplace_back(Fused{number, layer, {}, {}});
    for (const std::size_t i : tensors_of(parameter)) {
      const MappedTensor& tensor = map.tensors[i];
      auto found = tensors.take(layer_of(tensor.name), adapters.rank, tensor.rows(), parameter.columns);
      if (!found) continue;
      const auto same = std::ranges::find(fused.inputs, found->first);
      fused.parts.push_back({i, static_cast<std::size_t>(same - fused.inputs.begin()), std::move(found->second)});
      if (same == fused.inputs.end()) fused.inputs.push_back(std::move(found->first));
    }
    blocks = std::max(blocks, fused.inputs.size());
  });
  tensors.finish();
  config.adapters = adapters;
  config.adapters.rank = adapters.rank * static_cast<std::int64_t>(blocks);
  const auto wider = static_cast<double>(blocks);
  config.adapters.alpha = adapters.alpha * (adapters.rank_stabilised ? std::sqrt(wider) : wider);
  for (std::size_t target = 0; target < config.adapters.targets.size(); ++target) {
    model::LowRankAdapters alone = every;
    alone.targets.fill(false);
    alone.targets[target] = true;
    config.adapters.targets[target] =
        std::ranges::any_of(all, [&](const Fused& fused) { return !fused.parts.empty() && alone.adapt(fused.layer); });
  }
  auto source = std::make_unique<AdaptedSource>(std::move(base));
  for (const Fused& fused : all) {
    if (!config.adapters.adapt(fused.layer)) continue;
    add_adapter(*source, map, fused, config.adapters.rank, adapters.rank);
  }
  return source;
}

}  // namespace trireme::exchange
