#include "src/selftest/file_check.hpp"
#include "src/selftest/gpu_check.hpp"
#include "src/selftest/kernels/kernel_check.hpp"
#include "src/selftest/machine_check.hpp"
#include "src/selftest/network_checks.hpp"
#include "src/selftest/run.hpp"
#include "src/selftest/speed_check.hpp"

namespace trireme::selftest {

Checks all_checks(bool quick) {
  Checks checks;
  checks.push_back(std::make_unique<MachineCheck>());
  const CaseSizes sizes = quick ? CaseSizes::small : CaseSizes::small_and_model;
  for (auto& check : kernel_checks(sizes, {DType::fp32, DType::bf16, DType::fp16})) {
    checks.push_back(std::move(check));
  }
  if (!quick) checks.push_back(std::make_unique<SpeedCheck>());
  checks.push_back(std::make_unique<BurnCheck>());
  checks.push_back(std::make_unique<GpuCheck>());
  checks.push_back(std::make_unique<LatencyCheck>());
  checks.push_back(std::make_unique<CollectivesCheck>());
  checks.push_back(std::make_unique<FileCheck>());
  return checks;
}

}  // namespace trireme::selftest
