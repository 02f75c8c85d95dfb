#pragma once

#include "src/base/error.hpp"

/// Throws `ErrorType` with a formatted message unless `condition` holds. The condition is evaluated once.
#define TRIREME_CHECK(condition, ErrorType, ...)    \
  do {                                              \
    if (!(condition)) throw ErrorType(__VA_ARGS__); \
  } while (false)
