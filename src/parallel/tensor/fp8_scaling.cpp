#include "src/parallel/tensor/fp8_scaling.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "src/backend/host_numbers.hpp"
#include "src/base/parse_number.hpp"

namespace trireme::parallel {
namespace {

/// Names within a layer.
constexpr std::string_view weight_names[Fp8Scaling::weights_of_layer] = {
    "attn.qkv.weight", "attn.q.weight", "attn.kv.weight", "attn.proj.weight", "mlp.fc.weight", "mlp.proj.weight"};

}  // namespace

Fp8Scaling::Fp8Scaling(Backend& backend, const Fp8Options& options, int layers, Communicator& tensor_group,
                       Communicator* context_group)
    : backend_(backend),
      options_(options),
      layers_(layers),
      tensor_group_(tensor_group),
      context_group_(context_group),
      amax_(backend, DType::fp64, {std::int64_t{layers} * weights_of_layer * roles}),
      seen_(backend, DType::fp64, amax_.view().shape()) {
  begin(true);
}

void Fp8Scaling::begin(bool measures) {
  for (auto& [number, weight] : weights_) weight.copy.made = false;
  if (measures) backend_.elementwise().fill(backend_.compute_stream(), 0, seen_);
}

std::optional<int> Fp8Scaling::number_of(const std::string& weight) const {
  if (!weight.starts_with("h.")) return std::nullopt;
  const std::string_view rest = std::string_view(weight).substr(2);
  const std::size_t dot = rest.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::optional<int> layer = parse_number<int>(rest.substr(0, dot));
  const auto* const name = std::ranges::find(weight_names, rest.substr(dot + 1));
  const bool is_rounded = layer && *layer >= options_.first_layers && *layer < layers_ - options_.last_layers;
  if (!is_rounded || name == std::end(weight_names)) return std::nullopt;
  return *layer * weights_of_layer + static_cast<int>(name - std::begin(weight_names));
}

std::int64_t Fp8Scaling::copy_bytes(std::int64_t rows, std::int64_t columns) const {
  if (!backend_.supports(Capability::fp8_copies)) return 0;
  return fp8_copy_bytes(rows, columns, options_.recipe == Fp8Recipe::blockwise);
}

Fp8Copy Fp8Scaling::new_copy(Arena& arena, ConstTensorView tensor, bool has_sums) const {
  const std::int64_t rows = rows_of(tensor.shape()), columns = tensor.shape().back(), size = copy_bytes(rows, columns);
  if (!rounds() || size == 0) return {};
  return {.memory = arena.allocate(DType::uint8, {size + (has_sums ? fp8_sums_bytes(rows, columns) : 0)}),
          .has_sums = has_sums};
}

bool Fp8Scaling::computes_sources() const {
  return rounds() && options_.recipe != Fp8Recipe::tensorwise && backend_.supports(Capability::fp8_copies);
}

Fp8Copy* Fp8Scaling::weight_copy(int number, ConstTensorView weight) {
  if (!backend_.supports(Capability::fp8_copies)) return nullptr;
  const auto [found, is_new] = weights_.try_emplace(number);
  if (is_new) {
    found->second.memory = Tensor(backend_, DType::uint8, {copy_bytes(weight.shape()[0], weight.shape()[1])});
    found->second.copy.memory = found->second.memory;
  }
  return &found->second.copy;
}

std::size_t Fp8Scaling::copied_bytes() const {
  std::size_t sum = 0;
  for (const auto& [number, weight] : weights_) sum += weight.memory.view().size_bytes();
  return sum;
}

Fp8Operand Fp8Scaling::operand(int number, const Input& input) {
  const auto& [role, tensor, given, source] = input;
  const bool wide = role == Role::gradient && options_.hybrid;
  Fp8Operand operand{.format = wide ? Fp8Format::e5m2 : Fp8Format::e4m3, .source = source};
  operand.copy = role == Role::weight                ? weight_copy(number, tensor)
                 : given != nullptr && given->memory ? given
                                                     : nullptr;
  if (options_.recipe == Fp8Recipe::blockwise) return operand;
  const TensorView amax = slot(amax_, number, role);
  operand.amax = amax;
  if (operand.copy != nullptr && operand.copy->made) return operand;
  if (is_delayed()) {
    operand.seen = slot(seen_, number, role);
    return operand;
  }
  Stream& stream = backend_.compute_stream();
  backend_.elementwise().fill(stream, 0, amax);
  backend_.reduce().max_abs(stream, tensor, amax);
  for (Communicator* group : {&tensor_group_, context_group_}) {
    if (group != nullptr && group->size() > 1) group->all_reduce(stream, amax, ReduceOp::max).wait(stream);
  }
  return operand;
}

std::optional<Fp8Product> Fp8Scaling::product(int number, const Input& first, const Input& second) {
  if (rounds()) return Fp8Product{operand(number, first), operand(number, second), options_.margin};
  for (const Input& input : {first, second})
    backend_.reduce().max_abs(backend_.compute_stream(), input.tensor, slot(seen_, number, input.role));
  return std::nullopt;
}

std::vector<double> Fp8Scaling::read_seen() { return read_numbers(backend_, backend_.compute_stream(), seen_); }

void Fp8Scaling::set_amax(std::span<const double> amax) {
  write_numbers(backend_, backend_.compute_stream(), amax, amax_);
  known_ = true;
}

Fp8Weight::Fp8Weight(Fp8Scaling* scaling, const std::string& weight) {
  if (scaling == nullptr) return;
  const std::optional<int> number = scaling->number_of(weight);
  if (!number) return;
  scaling_ = scaling;
  number_ = *number;
}

std::optional<Fp8Product> Fp8Weight::forward(const Operand& x, ConstTensorView w) const {
  if (scaling_ == nullptr) return std::nullopt;
  return scaling_->product(number_, {Fp8Scaling::Role::input, x.tensor, x.copy, x.source},
                           {Fp8Scaling::Role::weight, w});
}

std::optional<Fp8Product> Fp8Weight::backward_input(const Operand& dy, ConstTensorView w) const {
  if (scaling_ == nullptr) return std::nullopt;
  return scaling_->product(number_, {Fp8Scaling::Role::gradient, dy.tensor, dy.copy, dy.source},
                           {Fp8Scaling::Role::weight, w});
}

std::optional<Fp8Product> Fp8Weight::backward_weight(const Operand& dy, const Operand& x) const {
  if (scaling_ == nullptr || !scaling_->rounds_weight_gradients()) return std::nullopt;
  return scaling_->product(number_, {Fp8Scaling::Role::gradient, dy.tensor, dy.copy, dy.source},
                           {Fp8Scaling::Role::input, x.tensor, x.copy, x.source});
}

Fp8Copy Fp8Weight::gradient_copy(Arena& arena, ConstTensorView dy, bool has_sums) const {
  if (scaling_ == nullptr || !scaling_->rounds_weight_gradients()) return {};
  return scaling_->new_copy(arena, dy, has_sums);
}

std::int64_t Fp8Weight::input_copy_bytes(std::int64_t rows, std::int64_t columns) const {
  if (scaling_ == nullptr || !scaling_->rounds_weight_gradients()) return 0;
  return scaling_->copy_bytes(rows, columns);
}

bool Fp8Weight::computes_sources() const {
  return scaling_ != nullptr && scaling_->rounds_weight_gradients() && scaling_->computes_sources();
}

}  // namespace trireme::parallel
