#pragma once

#include "tests/support/checkpoint_model.hpp"

namespace trireme::test {

/// The step that a version is saved as: 1, 1, 2, 3, 3, 4, 5, 5 ... so that steps are added, replaced and removed.
inline std::int64_t step_of(std::uint64_t version) { return static_cast<std::int64_t>((2 * version + 1) / 3); }

}  // namespace trireme::test
