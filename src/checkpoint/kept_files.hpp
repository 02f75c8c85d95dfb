#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/zero_pages.hpp"
#include "src/checkpoint/store.hpp"

namespace trireme::checkpoint {

/// Reader that keeps files of its step in memory from their verification on, so that loading does not read them again.
class KeptFiles final : public StepReader {
 public:
  /// Keeps at most `max_bytes`.
  KeptFiles(std::unique_ptr<StepReader> step, std::int64_t max_bytes)
      : step_(std::move(step)), left_bytes_(max_bytes) {}

  /// Keeps a file that has the manifest's size, if it fits, as it is then read from the first byte to the last.
  void keep(std::size_t file);

  std::string description() const override { return step_->description(); }
  const Manifest& manifest() const override { return step_->manifest(); }
  std::int64_t file_size(std::size_t file) override { return step_->file_size(file); }
  void read(std::size_t file, std::int64_t offset_bytes, std::span<std::byte> out) override;
  void prefetch(std::size_t file, std::int64_t offset_bytes, std::int64_t size_bytes) override {
    if (!kept_.contains(file)) step_->prefetch(file, offset_bytes, size_bytes);
  }
  std::vector<std::string> foreign_files() override { return step_->foreign_files(); }

 private:
  std::unique_ptr<StepReader> step_;
  std::int64_t left_bytes_;
  struct Kept {
    std::unique_ptr<ZeroPages<std::byte>> bytes;
    std::int64_t size_bytes = 0;
    std::int64_t end = 0;  // end of the bytes that were read
  };
  std::map<std::size_t, Kept> kept_;
};

}  // namespace trireme::checkpoint
