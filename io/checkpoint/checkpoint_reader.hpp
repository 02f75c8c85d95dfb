#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/posix/direct_io.hpp"
#include "io/posix/file.hpp"
#include "src/checkpoint/store.hpp"

namespace trireme::io {

inline constexpr const char* manifest_name = "manifest.json";

/// Returns the number in a step folder's name, after `prefix` and up to the end or the next hyphen; -1 if none.
std::int64_t number_in(std::string_view name, std::string_view prefix);
inline constexpr std::string_view step_prefix = "step-";
inline constexpr std::string_view trash_prefix = ".trash-";

/// A step's folder, read as plain bytes. Refuses symbolic links and non-regular files. Damage is a CheckpointError. An
/// existing file that stays unreadable after retries of transient errors is an IoError.
class CheckpointReader final : public checkpoint::StepReader {
 public:
  /// Reads the manifest. CheckpointError if it is missing, damaged, or of a step other than the folder's name says.
  explicit CheckpointReader(std::string folder);
  /// Takes the manifest's text from another rank; see checkpoint::Store::open_with.
  CheckpointReader(std::string folder, const std::string& manifest_text);
  std::string description() const override { return folder_; }
  const checkpoint::Manifest& manifest() const override { return manifest_; }
  std::int64_t file_size(std::size_t file) override;
  void read(std::size_t file, std::int64_t offset_bytes, std::span<std::byte> out) override;
  void prefetch(std::size_t file, std::int64_t offset_bytes, std::int64_t size_bytes) override {
    prefetcher_.begin(file_path(file), offset_bytes, size_bytes, Symlinks::refuse);
  }
  std::vector<std::string> foreign_files() override;

 private:
  void set_manifest(const std::string& text);
  std::ptrdiff_t read_some(std::size_t file, std::int64_t offset_bytes, std::span<std::byte> out);
  std::string file_path(std::size_t file) const { return folder_ + "/" + manifest_.files[file].name; }
  std::string folder_;
  checkpoint::Manifest manifest_;
  Descriptor descriptor_;  // descriptor of the file read last
  std::size_t open_file_ = 0;
  std::int64_t read_end_ = 0;  // end of the last read
  Prefetcher prefetcher_;
};

/// Returns whether a file has the name of the manifest in a step's folder, or of a rank's tensors there.
bool belongs_to_step(const std::string& file);

/// Returns the bytes of the manifest in a step's folder. CheckpointError if it is missing.
std::string manifest_text_of(const std::string& step_folder);

}  // namespace trireme::io
