#pragma once

#include "src/selftest/files.hpp"

namespace trireme::io {

/// POSIX files for the self-test. `read` first asks the system to drop the file's cached pages.
class SelftestFiles final : public selftest::Files {
 public:
  void write_and_sync(const std::string& path, std::span<const std::byte> bytes) override;
  std::vector<std::byte> read(const std::string& path) override;
  void remove_old(const std::string& folder, const std::string& prefix) noexcept override;
  void remove(const std::string& path) noexcept override;
};

}  // namespace trireme::io
