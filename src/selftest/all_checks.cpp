#include "src/selftest/file_check.hpp"
#include "src/selftest/gpu_check.hpp"
#include "src/selftest/kernels/kernel_check.hpp"
#include "src/selftest/machine_check.hpp"
#include "src/selftest/network_checks.hpp"
#include "src/selftest/run.hpp"
#include "src/selftest/speed_check.hpp"

namespace trireme::selftest {

Checks all_checks() {
  Checks checks;
  checks.push_back(std::make_unique<MachineCheck>());
  checks.push_back(std::make_unique<GpuCheck>());
  for (auto& check : kernel_checks(CaseSizes::small_and_model, {DType::fp32, DType::bf16, DType::fp16})) {
    checks.push_back(std::move(check));
  }
  checks.push_back(std::make_unique<SpeedCheck>());
  checks.push_back(std::make_unique<BurnCheck>());
  checks.push_back(std::make_unique<LatencyCheck>());
  checks.push_back(std::make_unique<CollectivesCheck>());
  checks.push_back(std::make_unique<FileCheck>());
  return checks;
}

}  // namespace trireme::selftest
