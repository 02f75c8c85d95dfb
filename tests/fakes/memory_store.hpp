#pragma once

#include <map>

#include "src/checkpoint/store.hpp"

namespace trireme::checkpoint {

/// Keeps steps in the memory of one process.
class MemoryStore : public Store {
 public:
  std::string description() const override { return "memory"; }
  std::string claim(std::int64_t) override { return "memory"; }
  void confirm(const std::string& token) override;
  std::string begin(std::int64_t step, std::int64_t needed_bytes, const std::string& origin) override;
  ShardFile write_shard(const std::string& staging, const std::string& file_name,
                        std::span<const ShardDataset> datasets) override;
  void commit(const std::string& staging, const Manifest& manifest) override;
  void abandon(const std::string& staging) noexcept override;
  std::vector<StepEntry> steps() override;
  std::unique_ptr<StepReader> open(const std::string& name) override;
  std::string step_name(std::int64_t step) const override;
  void remove(const std::string& name) override;

  /// The bytes of a file of a saved step, to damage it.
  std::vector<std::byte>& file(const std::string& step_name, const std::string& file_name);

 private:
  using Files = std::map<std::string, std::vector<std::byte>>;
  struct Step {
    Manifest manifest;
    Files files;
  };
  class Reader;
  std::map<std::string, Files> staged_;
  std::map<std::string, Step> steps_;
  std::string latest_;
};

}  // namespace trireme::checkpoint
