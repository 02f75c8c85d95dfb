#pragma once

#include "src/base/error.hpp"

namespace trireme {

/// A machine that computes wrong: the job must go on without it. Its exit code is 9.
class MachineError : public detail::ErrorOf<ExitCode{9}> {
  using ErrorOf::ErrorOf;
};

}  // namespace trireme
