#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "src/tensor/tensor_view.hpp"

namespace trireme {

/// Backend memory with one owner. Aligned to at least 64 bytes; initially undefined.
class Buffer {
 public:
  using Free = std::function<void(std::byte*)>;
  Buffer() = default;
  Buffer(std::byte* data, std::size_t size_bytes, Free free) : data_(data, std::move(free)), size_bytes_(size_bytes) {}
  std::byte* data() const { return data_.get(); }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_bytes_ = 0;
};

/// Source of memory: a backend, or a test.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Throws EnvironmentError, with the requested size, if memory is insufficient.
  virtual Buffer allocate(std::size_t size_bytes) = 0;
};

/// Growth of an arena for a tensor that does not fit into the memory left by earlier ones.
enum class Growth {
  append,  ///< by another allocation: addresses stay valid, but tensors of ever new sizes leave memory unused
  replace  ///< each large tensor has an allocation of its own, by its place in the order, which a larger one replaces
};

/// Memory allocated in stack order: tensors are freed together by resetting to a mark. It grows in the first steps;
/// later ones reuse the memory without allocating. Small tensors share blocks. A tensor larger than a quarter of a
/// block gets a separate allocation, or reuses an earlier one.
class Arena {
 public:
  explicit Arena(Allocator& allocator, std::size_t block_bytes = std::size_t{1} << 20, Growth growth = Growth::append)
      : allocator_(&allocator), block_bytes_(block_bytes), growth_(growth) {}

  Allocator& allocator() const { return *allocator_; }
  Growth growth() const { return growth_; }
  /// Returns an uninitialised tensor, aligned to 64 bytes, valid until the arena is reset to an earlier mark.
  TensorView allocate(DType dtype, const Shape& shape);

  /// A position to reset to.
  struct Mark {
    struct Position {
      std::size_t block = 0;
      std::size_t used = 0;
    };
    Position small, large;
    std::size_t total = 0;
  };
  Mark mark() const { return position_; }
  void release(const Mark& mark) { position_ = mark; }
  void clear() { position_ = {}; }

  /// Bytes of live tensors, each rounded up to 64: current, and peak.
  std::size_t used_bytes() const { return position_.total; }
  std::size_t peak_bytes() const { return peak_bytes_; }
  /// Bytes taken from the allocator.
  std::size_t reserved_bytes() const;
  /// Memory of the live tensors, as consecutive ranges of bytes: uint8, in an order that depends only on the calls.
  std::vector<TensorView> used_ranges() const;

 private:
  struct Block {
    Buffer memory;
    std::size_t used = 0;  // when the position moved on
  };
  using Blocks = std::vector<Block>;
  /// Takes memory from the first block from `position` on with enough room; else from a new one of `new_block_bytes`.
  /// The rest of skipped blocks is unused until the arena is reset.
  std::byte* take(Blocks& blocks, Mark::Position& position, std::size_t size_bytes, std::size_t new_block_bytes);
  /// Likewise for a large tensor with Growth::replace: takes the next block, and replaces it if it is too small.
  std::byte* take_next(std::size_t size_bytes);

  Allocator* allocator_;
  std::size_t block_bytes_;
  Growth growth_;
  Blocks small_, large_;
  Mark position_;
  std::size_t peak_bytes_ = 0;
};

/// Frees an arena's tensors at the end of their scope.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.release(mark_); }
  ArenaScope& operator=(ArenaScope&&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

/// A tensor that owns its memory.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Allocator& allocator, DType dtype, const Shape& shape)
      : buffer_(allocator.allocate(static_cast<std::size_t>(shape.numel()) * size_of(dtype))),
        view_(buffer_.data(), dtype, shape) {}
  TensorView view() const { return view_; }
  operator TensorView() const { return view_; }
  operator ConstTensorView() const { return view_; }

 private:
  Buffer buffer_;
  TensorView view_;
};

}  // namespace trireme
