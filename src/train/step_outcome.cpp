#include "src/train/step_outcome.hpp"

#include <span>

#include "src/optim/grad_norm.hpp"

namespace trireme::train {

StepOutcome::StepOutcome(ParallelModel& model, int norm_power)
    : model_(model),
      norm_power_(norm_power),
      groups_(std::ssize(model.gradient_groups())),
      numbers_(model.backend(), DType::fp64, {groups_at + groups_}),
      copy_(model.backend(), {numbers_.view()}) {
  allow_updates();
}

void StepOutcome::allow_updates() {
  model_.backend().elementwise().fill(model_.backend().compute_stream(), 0, part(factor_at, 1));
}

void StepOutcome::enqueue(double loss_scale, double norm_limit) {
  Backend& backend = model_.backend();
  const TensorView all = part(all_at, model::LossSums::kinds), sums = part(groups_at, groups_);
  model_.take_loss_sums(part(mine_at, model::LossSums::kinds), all);
  optim::sum_gradients(backend, model_.parameters(), model_.gradient_groups(), sums, norm_power_);
  backend.optimizer().decide(backend.compute_stream(), {loss_scale, norm_limit, norm_power_}, all, sums,
                             part(norm_at, 1), part(factor_at, 1));
  copy_.download(backend.compute_stream());
}

StepOutcome::Numbers StepOutcome::read() {
  copy_.wait();
  const std::span<const double> numbers(copy_.host(0).as<double>(), static_cast<std::size_t>(groups_at));
  const auto losses = [&](std::int64_t at) {
    return model_.stage().loss_sums_of(numbers.subspan(static_cast<std::size_t>(at), model::LossSums::kinds));
  };
  return {losses(mine_at), losses(all_at), numbers[norm_at], numbers[factor_at]};
}

}  // namespace trireme::train
