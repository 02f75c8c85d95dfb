#include "src/data/dataset/sampler.hpp"

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/split.hpp"

namespace trireme::data {
namespace {

constexpr const char* budgets_name = "data_budgets";

/// Returns whether `text` is three integers separated by commas.
bool parse(std::string_view text, SampleBudget& budget) {
  const std::vector<std::string_view> numbers = split(text, ',');
  if (numbers.size() != 3 || text.ends_with(',')) return false;
  const auto number = [&](std::size_t i) { return parse_number<std::int64_t>(numbers[i]).value_or(-1); };
  budget = {number(0), number(1), number(2)};
  return budget.train >= 0 && budget.valid >= 0 && budget.test >= 0;
}

}  // namespace

SampleBudget samples_needed(const RunLength& run) {
  TRIREME_CHECK(
      run.train_iters >= 0 && run.global_batch_size > 0 && run.eval_interval > 0 && run.eval_iters >= 0, ConfigError,
      "<train_iters> {} and <eval_iters> {} must not be negative, <global_batch_size> {} and <eval_interval> {} "
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

Attributes attributes_of(const std::vector<SampleBudget>& budgets) {
  std::string text;
  for (const SampleBudget& budget : budgets) {
    text += fmt::format("{}{},{},{}", text.empty() ? "" : ";", budget.train, budget.valid, budget.test);
  }
  return {{budgets_name, text}};
}

std::vector<SampleBudget> budgets_from(const Attributes& attributes) {
  std::vector<SampleBudget> budgets;
  const auto text = attributes.get<std::string>(budgets_name);
  for (const std::string_view entry : split(text, ';')) {
    attributes.require(parse(entry, budgets.emplace_back()), budgets_name,
                       "three whole numbers TRAIN,VALID,TEST a budget, with ; between budgets");
  }
  return budgets;
}

}  // namespace trireme::data
