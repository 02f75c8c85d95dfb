#include "src/selftest/machine_check.hpp"

#include <sys/utsname.h>

#include <fstream>

#include "src/base/machine.hpp"

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

}  // namespace

std::vector<Result> MachineCheck::run(Context& context) {
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

}  // namespace trireme::selftest
