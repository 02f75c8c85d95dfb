#pragma once

#include <unistd.h>

#include "src/base/unique_handle.hpp"

namespace trireme::io {

/// POSIX file descriptor.
struct DescriptorTraits {
  using Handle = int;
  static Handle null() { return -1; }
  static void close(Handle descriptor) noexcept { ::close(descriptor); }
};
using Descriptor = UniqueHandle<DescriptorTraits>;

}  // namespace trireme::io
