#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/tensor/dtype.hpp"
#include "src/tensor/shape.hpp"

namespace trireme::exchange {

/// Tensor of another program's checkpoint.
struct ForeignTensor {
  std::string name;
  DType dtype = DType::fp32;
  Shape shape;
};

/// Reader of the tensors of another program's checkpoint. Each rank opens its own. A source hides how the tensors are
/// stored: in several files, or in shards of several ranks.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Returns the location, for messages.
  virtual std::string description() const = 0;
  /// Returns all tensors, each name once, in the same order on every rank.
  virtual const std::vector<ForeignTensor>& tensors() const = 0;
  /// Reads the elements of tensor `tensor` from `first` on, flattened row-major, in its own type and little-endian,
  /// until `out` is full. DataError if the files are damaged, IoError if reading fails.
  virtual void read(std::size_t tensor, std::int64_t first, std::span<std::byte> out) = 0;
  /// Hints that these elements will be read once, and only by this rank.
  virtual void prefetch(std::size_t, std::int64_t /*first*/, std::int64_t /*count*/) {}
};

/// Elements of a tensor, flattened row-major: `count` ranges of `length` elements, which start at element `first` and
/// every `stride` elements after it.
struct Ranges {
  std::size_t tensor = 0;
  std::int64_t first = 0;
  std::int64_t length = 0;
  std::int64_t count = 1;
  std::int64_t stride = 0;
};

/// Files that tensors are written to. Each file appears under its name when it is complete, or not at all. Calls marked
/// [0] are made only on rank 0, all others on every rank; none of them communicates.
class TensorDestination {
 public:
  virtual ~TensorDestination() = default;
  /// Returns the tensors of each file, as indices in the list that the destination was made for.
  virtual const std::vector<std::vector<std::size_t>>& files() const = 0;
  virtual std::string file_name(std::size_t file) const = 0;

  /// Opens the file if it exists with the expected size and description. Returns the digest of tensors that it states;
  /// empty if there is no such file.
  virtual std::string open_existing(std::size_t file) = 0;
  /// [0] Creates a file. Returns its name until `commit`.
  virtual std::string begin(std::size_t file) = 0;
  /// Opens the file that rank 0 created.
  virtual void open(std::size_t file, const std::string& begun) = 0;
  /// Writes elements of a tensor of the open file, in its type: `ranges.count` * `ranges.length`, range by range.
  virtual void write(const Ranges& ranges, std::span<const std::byte> elements) = 0;
  /// Reads such elements of the open file.
  virtual void read(const Ranges& ranges, std::span<std::byte> out) = 0;
  /// Flushes this rank's writes to the disk and closes the file.
  virtual void close() = 0;
  /// [0] Writes the digest of all tensors to the file, and gives it its final name.
  virtual void commit(const std::string& digest) = 0;
  /// [0] Removes the created file, if any.
  virtual void abandon() noexcept = 0;
};

}  // namespace trireme::exchange
