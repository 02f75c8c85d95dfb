#pragma once

#include "src/selftest/check.hpp"

namespace trireme::selftest {

/// Equipment and versions of the nodes: CPU model, cores, memory and kernel, and the context's properties. A node with
/// fewer cores or less memory than the others fails; other differences are shown.
class MachineCheck final : public Check {
 public:
  std::string name() const override { return "nodes"; }
  std::string measures() const override { return "equipment and versions that differ"; }
  std::vector<Result> run(Context& context) override;
};

}  // namespace trireme::selftest
