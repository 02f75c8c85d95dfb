#pragma once

#include <functional>
#include <set>

#include "tests/ptx/module.hpp"

// Kernels of the fake CUDA runtime, in programs that are linked with nvcc's objects: a launch runs the PTX in them.

namespace trireme::ptx {

/// The PTX of every object of the program. Throws PtxError for an object without PTX.
std::vector<std::string> embedded_ptx();

/// Applies `edit` to the PTX of every object from now on; an empty function restores the original. Nothing may be
/// enqueued.
void edit_ptx(std::function<std::string(const std::string& text)> edit);

/// Names of the kernels that were never launched.
std::set<std::string> kernels_not_launched();

}  // namespace trireme::ptx
