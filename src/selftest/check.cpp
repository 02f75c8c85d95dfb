#include "src/selftest/check.hpp"

#include "src/base/log.hpp"
#include "src/comm/host_collectives.hpp"
#include "src/selftest/kernels/kernel_check.hpp"

namespace trireme::selftest {
namespace {

/// Returns the first rank whose own device check threw; -1: none. Collective.
int first_failed_rank(Context& context, bool has_failed) {
  const int first =
      all_reduce_number(context.world, has_failed ? -context.place.rank : -context.world.size(), ReduceOp::max);
  return -first == context.world.size() ? -1 : -first;
}

std::vector<Result> run_alone(const Check& check, Context& context, bool& has_failed) {
  std::vector<Result> results;
  try {
    results = check.run(context);
    context.backend.compute_stream().synchronize();  // throws if a kernel has left the device unusable
  } catch (const std::exception& error) {
    has_failed = true;
    results.push_back({.check = check.name, .passed = false, .detail = error.what()});
  }
  return results;
}

}  // namespace

std::vector<int> nodes_of_ranks(Context& context) { return all_gather_number(context.world, context.place.node); }

Checks all_checks(bool quick) {
  Checks checks = {machine_check()};
  for (const Family& family : families) {
    checks.push_back(kernel_check(family, quick ? CaseSizes::small : CaseSizes::small_and_model,
                                  {DType::fp32, DType::bf16, DType::fp16}));
  }
  if (!quick) checks.push_back(speed_check());
  checks.insert(checks.end(), {burn_check(), gpu_check(), latency_check(), collectives_check(), file_check()});
  return checks;
}

Report run(const Checks& checks, Context& context) {
  std::vector<Result> own;
  bool has_failed = false;
  for (const Check& check : checks) {
    log::info("{}: {}", check.name, check.measures);
    context.world.barrier();
    std::vector<Result> results;
    if (check.scope == Scope::rank) {
      results = run_alone(check, context, has_failed);
    } else if (const int failed = check.scope == Scope::devices ? first_failed_rank(context, has_failed) : -1;
               failed >= 0) {
      results = {{.check = check.name,
                  .kind = Kind::skipped,
                  .detail = fmt::format("the device of rank {} failed before", failed)}};
    } else {
      results = check.run(context);
    }
    for (Result& result : results) {
      result.rank = context.place.rank;
      result.host = context.place.host;
      own.push_back(std::move(result));
    }
  }
  std::vector<Result> all;
  for (const std::string& text : all_gather_text(context.world, text_of(own))) {
    for (Result& result : results_of(text)) all.push_back(std::move(result));
  }
  return judge(std::move(all));
}

}  // namespace trireme::selftest
