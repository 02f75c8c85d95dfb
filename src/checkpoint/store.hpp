#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/checkpoint/manifest.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme::checkpoint {

/// A step that can, or should, be loaded.
struct StepEntry {
  std::string name;                  ///< for `Store::open` and `Store::remove`
  std::optional<std::int64_t> step;  ///< from its manifest; empty where that is damaged
  std::string problem;               ///< why the manifest could not be read
  bool latest = false;               ///< the store's pointer, LATEST, names it
  bool replaced = false;             ///< set aside while another one of the same step took its place
};

/// A saved step, opened for reading. Each rank opens its own.
class StepReader {
 public:
  virtual ~StepReader() = default;
  /// Where it is, for messages.
  virtual std::string description() const = 0;
  /// Read, and found intact by its own digest, when the step was opened; not validated.
  virtual const Manifest& manifest() const = 0;
  /// Size at present of file `file` of the manifest; CheckpointError where there is none.
  virtual std::int64_t file_size(std::size_t file) = 0;
  /// Bytes [offset_bytes, offset_bytes + out.size()) of that file.
  virtual void read(std::size_t file, std::int64_t offset_bytes, std::span<std::byte> out) = 0;
  /// Hint: these bytes will be read once, in ascending order, and by this rank alone.
  virtual void prefetch(std::size_t, std::int64_t /*offset_bytes*/, std::int64_t /*size_bytes*/) {}
  /// Names of existing files that the manifest does not list; hidden ones do not count.
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

/// Keeps the steps of a run: a folder, or memory in tests. A step is written under another name and gets its own when
/// it is complete. So a reader sees all of a step or nothing. Calls marked [0] are made on one rank only, all others on
/// each rank that takes part; none of them communicates.
class Store {
 public:
  virtual ~Store() = default;

  /// Where it is, for messages.
  virtual std::string description() const = 0;

  /// [0] Takes the store for this job, until the store's end. Checks that a step of this size can be saved: that the
  /// store exists, is writable and has room. Throws where it cannot, or where another job has the store. The result is
  /// for `confirm`.
  virtual std::string claim(std::int64_t needed_bytes) = 0;
  /// Throws where this rank does not find the result of `claim`: the location is not shared by all ranks.
  virtual void confirm(const std::string& token) = 0;

  /// [0] Begins to save a step; the result names it until it is committed. Claims the store unless it is claimed, and
  /// removes what saves that were killed left behind. A save with an `origin`, a digest of all that its bytes follow
  /// from, goes on with the files that a killed one of the same origin left whole.
  virtual std::string begin(std::int64_t step, std::int64_t needed_bytes, const std::string& origin) = 0;
  /// Writes this rank's file, unless one of the same origin is there; on return its bytes are safe.
  virtual ShardFile write_shard(const std::string& staging, const std::string& file_name,
                                std::span<const ShardDataset> datasets) = 0;
  /// [0] Makes the step the latest one; one of the same number is replaced. Where this throws the earlier ones are
  /// still there.
  virtual void commit(const std::string& staging, const Manifest& manifest) = 0;
  /// [0] Removes what `begin` and `write_shard` wrote.
  virtual void abandon(const std::string& staging) noexcept = 0;

  /// All steps, greatest first; empty where the store does not exist.
  virtual std::vector<StepEntry> steps() = 0;
  /// CheckpointError where there is none of this name, its manifest is damaged, or that is of another step than the
  /// name says. Any other kind of error is no damage: the step cannot be read at present.
  virtual std::unique_ptr<StepReader> open(const std::string& name) = 0;
  /// Name that `commit` gives to a step of this number.
  virtual std::string step_name(std::int64_t step) const = 0;
  /// [0] Removes a step, such that a reader sees all of it or nothing.
  virtual void remove(const std::string& name) = 0;
};

}  // namespace trireme::checkpoint
