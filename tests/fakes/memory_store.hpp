#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/checkpoint/store.hpp"

namespace trireme::checkpoint {

/// Keeps steps in the memory of one process.
class MemoryStore : public Store {
 public:
  std::string description() const override { return "memory"; }
  std::string claim(std::int64_t) override { return "memory"; }
  void confirm(const std::string& token) override {
    TRIREME_CHECK(token == "memory", IoError, "the checkpoints are not kept in memory on every rank");
  }
  std::string begin(std::int64_t step, std::int64_t, const std::string&) override {
    const std::string name = step_name(step);
    staged_[name].clear();
    return name;
  }
  ShardFile write_shard(const std::string& staging, const std::string& file_name,
                        std::span<const ShardDataset> datasets) override {
    std::vector<std::byte>& file = staged_.at(staging)[file_name];
    ShardFile shard;
    for (const ShardDataset& dataset : datasets) {
      shard.offsets_bytes.push_back(static_cast<std::int64_t>(file.size()));
      const ConstTensorView data = dataset.data();
      file.insert(file.end(), data.data(), data.data() + data.size_bytes());
      shard.digests.push_back(digest(data.data(), data.size_bytes()));
    }
    shard.entry = {file_name, static_cast<std::int64_t>(file.size()), digest(file.data(), file.size())};
    return shard;
  }
  std::unique_ptr<FileSink> add_file(const std::string& folder, const FileEntry& file) override {
    const auto step = steps_.find(folder);
    return std::make_unique<Sink>(step != steps_.end() ? step->second.files : staged_.at(folder), file);
  }
  void commit(const std::string& staging, const Manifest& manifest) override {
    const std::string name = step_name(manifest.step);
    steps_[name] = {manifest, std::move(staged_.at(staging))};
    steps_[name].manifest.digest = digest(&manifest.step, sizeof manifest.step);
    staged_.erase(staging);
    latest_ = name;
  }
  void abandon(const std::string& staging) noexcept override { staged_.erase(staging); }
  std::vector<StepEntry> steps() override {
    std::vector<StepEntry> entries;
    for (const auto& [name, step] : steps_) entries.push_back({name, step.manifest.step, name == latest_, false});
    std::ranges::sort(entries, std::ranges::greater{}, &StepEntry::step);
    return entries;
  }
  std::string manifest_text(const std::string& name) override { return name; }
  std::unique_ptr<StepReader> open_with(const std::string& name, const std::string&) override {
    const auto found = steps_.find(name);
    TRIREME_CHECK(found != steps_.end(), CheckpointError, "there is no checkpoint {} in memory", name);
    return std::make_unique<Reader>(name, found->second);
  }
  std::string step_name(std::int64_t step) const override { return fmt::format("step-{:08}", step); }
  void remove(const std::string& name) override { steps_.erase(name); }

  /// Returns the bytes of a saved file, for tests to damage.
  std::vector<std::byte>& file(const std::string& step_name, const std::string& file_name) {
    return steps_.at(step_name).files.at(file_name);
  }

 private:
  using Files = std::map<std::string, std::vector<std::byte>>;
  struct Step {
    Manifest manifest;
    Files files;
  };
  class Sink final : public FileSink {
   public:
    Sink(Files& files, FileEntry entry) : files_(files), entry_(std::move(entry)) {}
    void append(std::span<const std::byte> bytes) override { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
    void finish() override {
      TRIREME_CHECK(digest(bytes_.data(), bytes_.size()) == entry_.digest, CheckpointError, "{} is damaged",
                    entry_.name);
      files_[entry_.name] = std::move(bytes_);
    }

   private:
    Files& files_;
    FileEntry entry_;
    std::vector<std::byte> bytes_;
  };
  class Reader final : public StepReader {
   public:
    Reader(std::string name, const Step& step) : name_(std::move(name)), step_(step) {}
    std::string description() const override { return name_ + " in memory"; }
    const Manifest& manifest() const override { return step_.manifest; }
    std::int64_t file_size(std::size_t file) override { return static_cast<std::int64_t>(bytes(file).size()); }
    void read(std::size_t file, std::int64_t offset_bytes, std::span<std::byte> out) override {
      const std::vector<std::byte>& source = bytes(file);
      const auto offset = static_cast<std::size_t>(offset_bytes);
      TRIREME_CHECK(offset <= source.size() && out.size() <= source.size() - offset, CheckpointError,
                    "{}: {} bytes at {} are beyond the end", description(), out.size(), offset);
      if (!out.empty()) std::memcpy(out.data(), source.data() + offset, out.size());
    }
    std::vector<std::string> foreign_files() override {
      std::vector<std::string> foreign;
      for (const auto& [name, content] : step_.files) {
        if (std::ranges::find(manifest().files, name, &FileEntry::name) == manifest().files.end()) {
          foreign.push_back(name);
        }
      }
      return foreign;
    }

   private:
    const std::vector<std::byte>& bytes(std::size_t file) const {
      const std::string& name = step_.manifest.files[file].name;
      const auto found = step_.files.find(name);
      TRIREME_CHECK(found != step_.files.end(), CheckpointError, "{}: the file {} is missing", description(), name);
      return found->second;
    }
    std::string name_;
    const Step& step_;
  };

  std::map<std::string, Files> staged_;
  std::map<std::string, Step> steps_;
  std::string latest_;
};

}  // namespace trireme::checkpoint
