#pragma once

#include <memory>

#include "src/backend/backend.hpp"

namespace trireme::test {

/// The backend that a program of kernel tests is linked with. `variant` must not change any bit of a result: the number
/// of threads of the CPU backend; for kernels on the host layer 1 runs threads and blocks as numbered, others in orders
/// of their own.
std::unique_ptr<Backend> make_backend(int variant);

}  // namespace trireme::test
