#include "src/selftest/gpu_check.hpp"

#include "src/backend/gpu_health.hpp"

namespace trireme::selftest {

std::vector<Result> GpuCheck::run(Context& context) {
  if (context.pci_address.empty()) return {};
  const GpuHealth health = read_gpu_health(context.pci_address, context.nvml);
  if (!health.problem.empty()) {
    return {{.check = "GPU state", .kind = Kind::skipped, .detail = health.problem}};
  }
  std::vector<Result> results = {{.check = "GPU driver", .kind = Kind::property, .detail = health.driver}};
  const auto add_limit = [&](const char* check, const std::optional<double>& value, const char* unit) {
    if (!value) return;
    results.push_back(
        {.check = check, .kind = Kind::rate, .value = *value, .unit = unit, .min_share = equipment_share});
  };
  add_limit("GPU largest clock", health.max_clock_mhz, "MHz");
  add_limit("GPU largest memory clock", health.max_memory_clock_mhz, "MHz");
  add_limit("GPU power limit", health.power_limit_w, "W");
  if (health.uncorrected_errors) {
    const std::uint64_t errors = *health.uncorrected_errors;
    results.push_back({.check = "GPU ECC errors",
                       .passed = errors == 0,
                       .value = static_cast<double>(errors),
                       .unit = "uncorrected",
                       .detail = fmt::format("{} uncorrected and {} corrected since the driver was loaded", errors,
                                             health.corrected_errors.value_or(0))});
  }
  return results;
}

}  // namespace trireme::selftest
