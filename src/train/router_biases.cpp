#include "src/train/router_biases.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "src/backend/host_numbers.hpp"
#include "src/comm/host_collectives.hpp"
#include "src/train/state_tensors.hpp"

namespace trireme::train {

RouterBiases::RouterBiases(ParallelModel& model)
    : model_(model), biases_(static_cast<std::size_t>(model.config().all_layers() * model.config().experts.count)) {
  const std::vector<parallel::Parameter>& parameters = model.parameters().parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].has_gradient) continue;
    own_.push_back({i, std::stoi(parameters[i].name.substr(std::string_view("h.").size()))});
  }
}

std::span<double> RouterBiases::of_layer(int layer) {
  const auto experts = static_cast<std::size_t>(model_.config().experts.count);
  return std::span(biases_).subspan(static_cast<std::size_t>(layer) * experts, experts);
}

checkpoint::StateTensor RouterBiases::piece_of(const Own& own, const Masters& masters) {
  return state_tensor(model_, own.parameter, "model", masters(own.parameter));
}

std::span<double> RouterBiases::range_of(const Own& own, const checkpoint::StateTensor& piece) {
  return of_layer(own.layer).subspan(static_cast<std::size_t>(piece.flat_begin),
                                     static_cast<std::size_t>(piece.data.numel()));
}

void RouterBiases::read(const Masters& masters) {
  std::ranges::fill(biases_, 0);
  for (const Own& own : own_) {
    const checkpoint::StateTensor piece = piece_of(own, masters);
    if (!piece.written_here || piece.data.numel() == 0) continue;  // each element comes from one rank
    std::ranges::copy(read_numbers(model_.backend(), model_.backend().compute_stream(), piece.data),
                      range_of(own, piece).begin());
  }
  all_reduce_numbers(model_.world(), biases_, ReduceOp::sum);
  model_.set_router_biases(biases_);
}

void RouterBiases::update(const std::vector<model::ExpertLoad>& loads, const Masters& masters) {
  const double rate = model_.config().experts.bias_update_rate;
  const bool is_double = accumulation_type(model_.execution().dtype) == DType::fp64;
  for (const model::ExpertLoad& load : loads) {
    const std::span<double> biases = of_layer(load.layer);
    const double sum = std::accumulate(load.chosen.begin(), load.chosen.end(), 0.0);
    for (std::size_t e = 0; e < biases.size(); ++e) {
      const double excess = load.chosen[e] * static_cast<double>(biases.size()) - sum;
      const double change = excess > 0 ? -rate : excess < 0 ? rate : 0;
      biases[e] = is_double ? biases[e] + change : static_cast<float>(biases[e]) + static_cast<float>(change);
    }
  }
  for (const Own& own : own_) {
    const checkpoint::StateTensor piece = piece_of(own, masters);
    if (piece.data.numel() == 0) continue;
    write_numbers(model_.backend(), model_.backend().compute_stream(), range_of(own, piece), piece.data);
  }
  model_.set_router_biases(biases_);
}

}  // namespace trireme::train
