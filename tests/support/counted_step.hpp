#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/checkpoint/store.hpp"

namespace trireme::test {

/// A step that counts the bytes that are read.
class CountedStep final : public checkpoint::StepReader {
 public:
  explicit CountedStep(std::unique_ptr<checkpoint::StepReader> step) : step_(std::move(step)) {}
  std::string description() const override { return step_->description(); }
  const checkpoint::Manifest& manifest() const override { return step_->manifest(); }
  std::int64_t file_size(std::size_t file) override { return step_->file_size(file); }
  void read(std::size_t file, std::int64_t offset_bytes, std::span<std::byte> out) override {
    bytes_read += static_cast<std::int64_t>(out.size());
    step_->read(file, offset_bytes, out);
  }
  std::vector<std::string> foreign_files() override { return step_->foreign_files(); }
  std::int64_t bytes_read = 0;

 private:
  std::unique_ptr<checkpoint::StepReader> step_;
};

}  // namespace trireme::test
