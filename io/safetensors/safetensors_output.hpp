#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/posix/direct_io.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/file.hpp"
#include "io/safetensors/safetensors_source.hpp"

namespace trireme::io {

/// Names of an export's files: STEM.safetensors, or STEM-00001-of-0000N.safetensors and so on, and the description that
/// is written last.
struct ExportNames {
  std::string stem = "model";
  std::string description = "config.json";
};
inline const ExportNames adapter_names = {"adapter_model", "adapter_config.json"};

/// Writes tensors into model.safetensors, or into several files, or those of other names. Each file's metadata hold
/// the digest of its tensors under "trireme_digest", and its origin under "trireme_origin". A file with the same
/// origin, tensors and size belongs to the same export. The description of an earlier export is deleted before a file
/// is written: without it there is no model.
class SafetensorsOutput final : public exchange::TensorDestination {
 public:
  /// Divides the tensors, in this order, over files of at most `max_file_bytes` of tensors; a larger tensor gets a
  /// separate file.
  SafetensorsOutput(std::string folder, std::vector<exchange::ForeignTensor> tensors, std::int64_t max_file_bytes,
                    const std::string& origin, ExportNames names = {});

  const std::vector<std::vector<std::size_t>>& files() const override { return files_; }
  std::string file_name(std::size_t file) const override;
  std::string open_existing(std::size_t file) override;
  std::string begin(std::size_t file) override;
  void open(std::size_t file, const std::string& begun) override;
  void write(const exchange::Ranges& ranges, std::span<const std::byte> elements) override;
  void read(const exchange::Ranges& ranges, std::span<std::byte> out) override;
  void close() override;
  void commit(const std::string& digest) override;
  void abandon() noexcept override;

  std::int64_t total_bytes() const { return total_bytes_; }
  /// Throws ConfigError if the folder holds other model files. Removes unfinished files of killed exports.
  void prepare_folder() const;
  /// Writes the index if there are several files.
  void finish() const;

 private:
  template <class Visit>
  void for_each_range(const exchange::Ranges& ranges, const Visit& visit) const;
  std::string folder_;
  ExportNames names_;
  std::vector<exchange::ForeignTensor> tensors_;
  std::vector<std::vector<std::size_t>> files_;
  std::vector<std::string> headers_;
  std::vector<std::int64_t> offsets_;  // offsets of the tensors in their files
  std::vector<std::int64_t> sizes_;    // bytes of the files
  std::int64_t total_bytes_ = 0;
  std::unique_ptr<TemporaryFile> begun_;
  std::size_t present_ = 0;  // open file
  std::string path_;
  Descriptor file_;                      // for reading
  std::unique_ptr<BlockWriter> writer_;  // for writing
};

}  // namespace trireme::io
