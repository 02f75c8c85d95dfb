#pragma once

#include "tests/ptx/module.hpp"

namespace trireme::ptx {

/// Decodes a kernel; the functions that it calls become part of it. Throws PtxError, which names line and text, for an
/// instruction that is unknown or has operands that it cannot have.
Kernel decode(const Module& module, const Function& kernel);

}  // namespace trireme::ptx
