#pragma once

#include <functional>
#include <string>

#include "src/base/error.hpp"

namespace trireme::test {

/// Returns the message of the exception that `function` throws.
template <class Exception = Error>
std::string message_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace trireme::test
