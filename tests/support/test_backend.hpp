#pragma once

#include <memory>

#include "src/backend/backend.hpp"

namespace trireme::test {

/// The backend that a program of kernel tests is linked with. Makes the backend under test. `variant` must not change
/// any bit of a result. For the CPU backend it is the number of threads. For kernels on the host 1 runs threads and
/// blocks as numbered, others in other orders.
std::unique_ptr<Backend> make_backend(int variant);

}  // namespace trireme::test
