#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/tensor/dtype.hpp"
#include "src/tensor/shape.hpp"

namespace trireme::exchange {

/// A tensor of another program's checkpoint.
struct ForeignTensor {
  std::string name;
  DType dtype = DType::fp32;
  Shape shape;
};

/// Tensors of another program's checkpoint, for reading. Each rank opens its own. A source hides how the tensors are
/// kept: in several files, or each in parts that were divided over ranks.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Where they are, for messages.
  virtual std::string description() const = 0;
  /// All tensors, each name once; the same order on every rank.
  virtual const std::vector<ForeignTensor>& tensors() const = 0;
  /// Reads elements [first, first + count) of tensor `tensor`, flattened row-major, in its own type and little-endian.
  /// `out` has room for exactly `count` elements. DataError if the files are damaged, IoError if reading fails.
  virtual void read(std::size_t tensor, std::int64_t first, std::span<std::byte> out) = 0;
  /// Hint: these elements will be read once, and by this rank alone.
  virtual void prefetch(std::size_t, std::int64_t /*first*/, std::int64_t /*count*/) {}
};

/// Elements of a tensor, flattened row-major: `count` ranges of `length` elements. The first range begins at element
/// `first`, each other one `stride` elements behind the one before.
struct Ranges {
  std::size_t tensor = 0;
  std::int64_t first = 0;
  std::int64_t length = 0;
  std::int64_t count = 1;
  std::int64_t stride = 0;
};

/// Files that take tensors. Every file appears under its name when it is whole, or not at all. Calls marked [0] are
/// made on one rank only, all others on every rank; none of them communicates.
class TensorDestination {
 public:
  virtual ~TensorDestination() = default;
  /// Tensors of each file, by their index in the list that the destination was made for.
  virtual const std::vector<std::vector<std::size_t>>& files() const = 0;
  virtual std::string file_name(std::size_t file) const = 0;

  /// Opens the file where it is there with the size and the description that it will get. Returns the digest of its
  /// tensors that it states; empty if there is none.
  virtual std::string open_existing(std::size_t file) = 0;
  /// [0] Begins a file. Returns the name that it has until `commit`.
  virtual std::string begin(std::size_t file) = 0;
  /// Opens the file that rank 0 began.
  virtual void open(std::size_t file, const std::string& begun) = 0;
  /// Writes elements of a tensor of the open file, in its type: `ranges.count` * `ranges.length`, range by range.
  virtual void write(const Ranges& ranges, std::span<const std::byte> elements) = 0;
  /// Reads such elements of the open file.
  virtual void read(const Ranges& ranges, std::span<std::byte> out) = 0;
  /// Brings what this rank wrote to the disk, and closes the file.
  virtual void close() = 0;
  /// [0] States the digest of all tensors in the file, and gives it its name.
  virtual void commit(const std::string& digest) = 0;
  /// [0] Removes the file begun, if any.
  virtual void abandon() noexcept = 0;
};

}  // namespace trireme::exchange
