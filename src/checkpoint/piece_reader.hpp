#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "src/base/hash.hpp"
#include "src/checkpoint/manifest.hpp"
#include "src/checkpoint/shard_plan.hpp"
#include "src/checkpoint/state.hpp"
#include "src/checkpoint/store.hpp"

namespace trireme::checkpoint {

/// Digest of a range of a file, which is read block by block.
std::string digest_of(StepReader& step, std::size_t file, std::int64_t offset_bytes, std::int64_t size_bytes);

/// Digest of a piece that is read part by part.
class PieceCheck {
 public:
  /// `step` and `piece` must outlive this object.
  PieceCheck(StepReader& step, const Piece& piece) : step_(step), piece_(piece) {}
  /// Must be called before reading elements of the piece, in ascending ranges. If they do not continue those read
  /// before, reads and verifies the entire piece.
  void before(std::span<const ElementRange> ranges);
  /// Adds the bytes of the next elements. CheckpointError if they were the last and the piece is damaged.
  void add(std::span<const std::byte> elements);
  /// Adds the remaining elements, if any were read.
  void finish();

 private:
  StepReader& step_;
  const Piece& piece_;
  std::int64_t done_bytes_ = 0;
  bool whole_ = false;  // verified as intact
  Digest digest_;
};

/// The elements of a loaded tensor.
inline TensorSlice slice_of(const StateTensor& tensor) { return {tensor.box, tensor.flat_begin, tensor.data.numel()}; }

/// Copies the elements of `tensor` contained in `piece`, in the tensor's type, rounded to nearest even. Returns their
/// number. Without a `check` the caller must have verified the file's digest.
std::int64_t read_piece(StepReader& step, const Piece& piece, const StateTensor& tensor, PieceCheck* check = nullptr);

}  // namespace trireme::checkpoint
