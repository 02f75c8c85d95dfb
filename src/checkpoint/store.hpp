#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/checkpoint/manifest.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme::checkpoint {

/// A step of a store, intact or damaged.
struct StepEntry {
  std::string name;       ///< for `Store::open` and `Store::remove`
  std::int64_t step = 0;  ///< from its name
  bool latest = false;    ///< the store's pointer, LATEST, names it
  bool replaced = false;  ///< set aside while being replaced by another save of the same step
};

/// A saved step, opened for reading. Each rank opens its own.
class StepReader {
 public:
  virtual ~StepReader() = default;
  /// Location, for messages.
  virtual std::string description() const = 0;
  /// Read and verified against its digest when the step was opened; not validated.
  virtual const Manifest& manifest() const = 0;
  /// Current size of file `file` of the manifest; CheckpointError if there is none.
  virtual std::int64_t file_size(std::size_t file) = 0;
  /// Bytes [offset_bytes, offset_bytes + out.size()) of that file.
  virtual void read(std::size_t file, std::int64_t offset_bytes, std::span<std::byte> out) = 0;
  /// Hint: these bytes will be read once, in ascending order, and only by this rank.
  virtual void prefetch(std::size_t, std::int64_t /*offset_bytes*/, std::int64_t /*size_bytes*/) {}
  /// Names of existing files that the manifest does not list; ignores hidden ones.
  virtual std::vector<std::string> foreign_files() = 0;
};

/// An array for a rank's file of a step. Its elements are read once, roughly in the order of the list, and need to be
/// valid only until the next array's are read.
struct ShardDataset {
  std::string name;
  DType dtype = DType::fp32;
  Shape shape;
  std::function<ConstTensorView()> data;  ///< dtype as above; as many elements as `shape`

  ShardDataset(std::string dataset, DType type, const Shape& extents, std::function<ConstTensorView()> elements)
      : name(std::move(dataset)), dtype(type), shape(extents), data(std::move(elements)) {}
  /// One that is in memory.
  ShardDataset(std::string dataset, ConstTensorView view)
      : ShardDataset(std::move(dataset), view.dtype(), view.shape(), [view] { return view; }) {}
  std::int64_t size_bytes() const { return shape.numel() * static_cast<std::int64_t>(size_of(dtype)); }
};
/// Written file of a rank; for each dataset its first byte in the file and the digest of its bytes.
struct ShardFile {
  FileEntry entry;
  std::vector<std::int64_t> offsets_bytes;
  std::vector<std::string> digests;
};

/// A file of a step that is copied from another place, in consecutive blocks. Without `finish` nothing of it remains.
class FileSink {
 public:
  virtual ~FileSink() = default;
  virtual void append(std::span<const std::byte> bytes) = 0;
  /// On return the file is durable. CheckpointError if size or digest are not those of its entry.
  virtual void finish() = 0;
};

/// Stores the steps of a run: a folder, or memory in tests. A step is written under a temporary name and renamed once
/// complete. Readers thus see a complete step or nothing. Calls marked [0] are made on one rank only, all others on
/// each rank that takes part; none of them communicates.
class Store {
 public:
  virtual ~Store() = default;

  /// Location, for messages.
  virtual std::string description() const = 0;

  /// [0] Locks the store for this job, for the store's lifetime. Checks that a step of this size can be saved: that the
  /// store exists, is writable and has room. Throws if it cannot, or if another job holds the store. The result is for
  /// `confirm`.
  virtual std::string claim(std::int64_t needed_bytes) = 0;
  /// Throws if this rank does not find the result of `claim`: the location is not shared by all ranks.
  virtual void confirm(const std::string& token) = 0;

  /// [0] Begins to save a step; the result names it until committed. Claims the store if necessary, and removes
  /// leftovers of killed saves. A save with an `origin`, a digest of everything its bytes depend on, reuses complete
  /// files of a killed one of the same origin.
  virtual std::string begin(std::int64_t step, std::int64_t needed_bytes, const std::string& origin) = 0;
  /// Writes this rank's file, unless one of the same origin exists; on return its bytes are durable.
  virtual ShardFile write_shard(const std::string& staging, const std::string& file_name,
                                std::span<const ShardDataset> datasets) = 0;
  /// Begins a copy of `file` in a step, or in one that is being saved, and replaces a file of that name.
  virtual std::unique_ptr<FileSink> add_file(const std::string& folder, const FileEntry& file) = 0;
  /// [0] Makes the step the latest one; one of the same number is replaced. If this throws, the earlier ones still
  /// exist.
  virtual void commit(const std::string& staging, const Manifest& manifest) = 0;
  /// [0] Removes the files written by `begin` and `write_shard`.
  virtual void abandon(const std::string& staging) noexcept = 0;

  /// All steps, greatest first; empty if the store does not exist. Reads no manifest.
  virtual std::vector<StepEntry> steps() = 0;
  /// Reads the manifest of a step, for `open_with`. CheckpointError if there is none. Any other error is not damage,
  /// here and below: the step is temporarily unreadable.
  virtual std::string manifest_text(const std::string& name) = 0;
  /// Opens a step by the manifest that another rank read, of which this one reads only the digest. CheckpointError if
  /// it finds another, or if the manifest is damaged or of another step than the name says.
  virtual std::unique_ptr<StepReader> open_with(const std::string& name, const std::string& manifest_text) = 0;
  /// Opens a step on this rank alone.
  std::unique_ptr<StepReader> open(const std::string& name) { return open_with(name, manifest_text(name)); }
  /// Name that `commit` gives to a step of this number.
  virtual std::string step_name(std::int64_t step) const = 0;
  /// [0] Removes a step atomically for readers.
  virtual void remove(const std::string& name) = 0;
};

}  // namespace trireme::checkpoint
