#pragma once

#include <string>

#include "io/file_handle.hpp"
#include "src/checkpoint/store.hpp"

namespace trireme::io {

inline constexpr const char* manifest_name = "manifest.json";

/// A step's folder, read as plain bytes. Symbolic links and what is not a regular file are refused.
class CheckpointReader final : public checkpoint::StepReader {
 public:
  /// Reads the manifest. CheckpointError where it is missing or damaged.
  explicit CheckpointReader(std::string folder);
  std::string description() const override { return folder_; }
  const checkpoint::Manifest& manifest() const override { return manifest_; }
  std::int64_t file_size(std::size_t file) override;
  void read(std::size_t file, std::int64_t offset_bytes, std::span<std::byte> out) override;

 private:
  std::string file_path(std::size_t file) const { return folder_ + "/" + manifest_.files[file].name; }
  std::string folder_;
  checkpoint::Manifest manifest_;
  Descriptor descriptor_;  // of the file read last
  std::size_t open_file_ = 0;
};

/// Whether all files of a valid manifest are there with their sizes; their bytes are not read.
bool looks_complete(const std::string& step_folder);

}  // namespace trireme::io
