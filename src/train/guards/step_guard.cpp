#include "src/train/guards/step_guard.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "src/base/log.hpp"
#include "src/tensor/dtype.hpp"
#include "src/train/guards/bad_tensor.hpp"
#include "src/train/guards/rank_list.hpp"
#include "src/train/train_record.hpp"

namespace trireme::train {
namespace {

/// Returns whether `a` and `b` are equal within `bound`; with bound 0, whether they have the same bits.
bool same(double a, double b, double bound) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  if (bound == 0) return false;
  if (!std::isfinite(a) || !std::isfinite(b)) return !std::isfinite(a) && !std::isfinite(b);
  return std::abs(a - b) <= bound * std::max(std::abs(a), std::abs(b));
}

}  // namespace

double rounding_bound(DType dtype, int layers, int tensor_ranks, int data_ranks) {
  const double roundings = 4.0 * layers * tensor_ranks + data_ranks;
  return std::min(0.5, 4 * unit_roundoff(dtype) * std::sqrt(roundings));
}

StepGuard::StepGuard(ParallelModel& model, const GuardOptions& options)
    : model_(model),
      options_(options),
      probe_(model),
      bound_(model.backend().supports(Capability::repeatable)
                 ? 0
                 : rounding_bound(model.execution().dtype, model.config().layers, model.communicators().tensor->size(),
                                  model.gradient_group().size())) {}

StepGuard::Result StepGuard::result(StepProbe::Step step) {
  Result result{probe_.sums(step), losses_, 0};
  Backend& backend = model_.backend();
  Stream& stream = backend.compute_stream();
  Tensor sum(backend, DType::fp64, {1});
  backend.elementwise().fill(stream, 0, sum);
  for (std::size_t bucket = 0; bucket < model_.parameters().layout().buckets().size(); ++bucket) {
    backend.reduce().sum_squares(stream, model_.parameters().shard_gradients(bucket), sum);
  }
  backend.copy_to_host(stream, sum.view(), TensorView(&result.gradients, {1}));
  stream.synchronize();
  return result;
}

std::vector<int> StepGuard::ranks_that_differ(const Result& first, const Result& second) {
  constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  std::int64_t mine = none;
  const auto compare = [&](std::int64_t order, bool equal) {
    if (!equal) mine = std::min(mine, order);
  };
  for (std::size_t i = 0; i < first.sums.size(); ++i) {
    compare(probe_.order_of(i), same(first.sums[i], second.sums[i], bound_));
  }
  compare(probe_.order_of_losses(), same(first.losses.tokens, second.losses.tokens, bound_) &&
                                        same(first.losses.samples, second.losses.samples, bound_) &&
                                        same(first.losses.ahead, second.losses.ahead, bound_));
  compare(probe_.order_of_reduced(), same(first.gradients, second.gradients, bound_));
  const std::int64_t least = least_of_ranks(model_.world(), mine);
  if (least == none) return {};
  return ranks_with(model_.world(), mine == least);
}

void StepGuard::check(TrainRecord& record, const Progress& progress, const std::function<void()>& run_again) {
  const auto loss_of = [](const TrainRecord& r) { return r.loss(); };
  const auto is_spiky = [&] {
    return options_.spiky_loss_factor > 0 && progress.is_spiky(loss_of(record), options_.spiky_loss_factor);
  };
  const std::optional<Result> kept = std::exchange(first_, {});
  const bool bad = options_.check_for_nan && record.skipped;
  if (!bad && !is_spiky()) return;
  const Result first = kept ? *kept : result();
  const std::string numbers = fmt::format("loss {}, gradient norm {}", loss_of(record), record.grad_norm);
  const std::string step = fmt::format("iteration {}, samples {} on,", record.iteration, progress.consumed_samples);
  searches_ = bad;
  run_again();
  searches_ = false;
  const std::vector<int> differing = ranks_that_differ(first, result());
  const bool is_root = model_.world().rank() == 0;
  if (differing.empty() && bad) {
    if (options_.rewinds) return;  // the update is skipped
    throw NumericalError(
        "loss or gradients of {} are not finite ({}), in a second run of the step, too: {}. Nothing was saved since. "
        "Try a lower <lr>, check the data, continue from an earlier checkpoint, or leave the iteration out by "
        "<iterations_to_skip>",
        step, numbers, describe_bad_tensor(model_, &probe_, losses_));
  }
  if (differing.empty()) {
    const bool skip = options_.skip_spiky_loss && !record.skipped;  // not one that a loss scale skips
    if (skip) {
      record.skipped = true;
      record.skip_reason = Skip::spiky;
    }
    if (is_root) {
      log::warn(
          "the loss of {} is spiky, in a second run of the step, too: {}, which is at least {:g} times {:.4f}, the "
          "largest of the first {}. {}",
          step, loss_of(record), options_.spiky_loss_factor, progress.largest_loss, Progress::spike_losses,
          skip ? "The update is skipped" : "Try <skip_spiky_loss> to skip such updates");
    }
    return;
  }
  machine_faults_ += 1;
  const std::string fault = fmt::format(
      "loss or gradients of {} were {} ({}), and a second run of the step on the same samples and weights gave another "
      "result{}. The results of {} differ first: a fault of the machine, not of the numbers",
      step, bad ? "not finite" : "spiky", numbers,
      bound_ > 0 ? fmt::format(", by more than the {:.1g} that rounding explains", bound_) : "",
      rank_list(model_.world(), differing));
  const bool bad_again = (options_.check_for_nan && record.skipped) || is_spiky();
  if (bad_again || machine_faults_ > options_.max_machine_faults) {
    report_nodes_of(model_.world(), differing);
    throw MachineError(
        "{}. {}. Nothing was saved since. Test the host with 'trireme selftest', exclude it, and run the same command "
        "again with <load>",
        fault,
        bad_again ? "The second result is bad, too"
                  : fmt::format("<max_machine_faults> {} is exceeded", options_.max_machine_faults));
  }
  if (is_root) {
    log::warn("{}. The run goes on with the second result, loss {}. Test the host with 'trireme selftest'", fault,
              loss_of(record));
  }
}

}  // namespace trireme::train
