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
  clear_seen();
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

Fp8Operand Fp8Scaling::operand(int number, Role role, ConstTensorView tensor) {
  const bool wide = role == Role::gradient && options_.hybrid;
  Fp8Operand operand{.format = wide ? Fp8Format::e5m2 : Fp8Format::e4m3};
  if (options_.recipe == Fp8Recipe::blockwise) return operand;
  const TensorView amax = slot(amax_, number, role);
  operand.amax = amax;
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

std::optional<Fp8Product> Fp8Scaling::product(int number, Role first_role, ConstTensorView first, Role second_role,
                                              ConstTensorView second) {
  if (rounds())
    return Fp8Product{operand(number, first_role, first), operand(number, second_role, second), options_.margin};
  backend_.reduce().max_abs(backend_.compute_stream(), first, slot(seen_, number, first_role));
  backend_.reduce().max_abs(backend_.compute_stream(), second, slot(seen_, number, second_role));
  return std::nullopt;
}

void Fp8Scaling::clear_seen() { backend_.elementwise().fill(backend_.compute_stream(), 0, seen_); }

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

std::optional<Fp8Product> Fp8Weight::forward(ConstTensorView x, ConstTensorView w) const {
  if (scaling_ == nullptr) return std::nullopt;
  return scaling_->product(number_, Fp8Scaling::Role::input, x, Fp8Scaling::Role::weight, w);
}

std::optional<Fp8Product> Fp8Weight::backward_input(ConstTensorView dy, ConstTensorView w) const {
  if (scaling_ == nullptr) return std::nullopt;
  return scaling_->product(number_, Fp8Scaling::Role::gradient, dy, Fp8Scaling::Role::weight, w);
}

std::optional<Fp8Product> Fp8Weight::backward_weight(ConstTensorView dy, ConstTensorView x) const {
  if (scaling_ == nullptr || !scaling_->rounds_weight_gradients()) return std::nullopt;
  return scaling_->product(number_, Fp8Scaling::Role::gradient, dy, Fp8Scaling::Role::input, x);
}

}  // namespace trireme::parallel
