#include <sys/utsname.h>

#include <fstream>

#include "src/backend/gpu_health.hpp"
#include "src/base/machine.hpp"
#include "src/selftest/check.hpp"

namespace trireme::selftest {
namespace {

Result property(std::string check, std::string text) {
  return {.check = std::move(check), .kind = Kind::property, .detail = std::move(text)};
}

/// Returns the first "model name" of /proc/cpuinfo; the machine's type if none.
std::string cpu_model(const utsname& system) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return system.machine;
}

std::vector<Result> check_machine(Context& context) {
  utsname system{};
  uname(&system);
  std::vector<Result> results = {property("CPU", cpu_model(system)),
                                 property("kernel", fmt::format("{} {}", system.sysname, system.release))};
  for (const Property& own : context.properties) results.push_back(property(own.name, own.text));
  const double cores = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  const double memory_gib = static_cast<double>(machine_memory_bytes()) / (1 << 30);
  for (const auto& [check, value, unit] :
       {std::tuple{"cores", cores, "cores"}, std::tuple{"memory", memory_gib, "GiB"}}) {
    results.push_back({.check = check, .kind = Kind::rate, .value = value, .unit = unit, .min_share = equipment_share});
  }
  return results;
}

std::vector<Result> check_gpu(Context& context) {
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

}  // namespace

Check machine_check() { return {"nodes", "equipment and versions that differ", Scope::rank, check_machine}; }

Check gpu_check() { return {"GPU state", "driver, clocks and ECC errors", Scope::rank, check_gpu}; }

}  // namespace trireme::selftest
