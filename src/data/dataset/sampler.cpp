#include "src/data/dataset/sampler.hpp"

#include "src/base/check.hpp"

namespace trireme::data {

SampleBudget samples_needed(const RunLength& run) {
  TRIREME_CHECK(
      run.train_iters >= 0 && run.global_batch_size > 0 && run.eval_interval > 0 && run.eval_iters >= 0, ConfigError,
      "--train-iters {} and --eval-iters {} must not be negative, --global-batch-size {} and --eval-interval {} "
      "must be at least 1",
      run.train_iters, run.eval_iters, run.global_batch_size, run.eval_interval);
  SampleBudget budget;
  std::int64_t evaluations = 0;
  const bool overflow = __builtin_add_overflow(run.train_iters / run.eval_interval, 1, &evaluations) ||
                        __builtin_mul_overflow(run.train_iters, run.global_batch_size, &budget.train) ||
                        __builtin_mul_overflow(run.eval_iters, run.global_batch_size, &budget.test) ||
                        __builtin_mul_overflow(evaluations, budget.test, &budget.valid);
  TRIREME_CHECK(!overflow, ConfigError,
                "{} iterations of {} samples, evaluated for {} iterations, are more samples than can be counted",
                run.train_iters, run.global_batch_size, run.eval_iters);
  if (run.train_samples > 0) budget.train = run.train_samples;
  return budget;
}

}  // namespace trireme::data
