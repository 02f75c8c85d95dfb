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
  /// `step` and `piece` must live longer.
  PieceCheck(StepReader& step, const Piece& piece) : step_(step), piece_(piece) {}
  /// To be called before elements of the piece are read, in ascending ranges. Where they do not follow those read
  /// before, this reads and compares the whole piece.
  void before(std::span<const ElementRange> ranges);
  /// Adds the bytes of the next elements. CheckpointError where they were the last, and the piece is damaged.
  void add(std::span<const std::byte> elements);
  /// Adds the elements that are left, if any were read.
  void finish();

 private:
  StepReader& step_;
  const Piece& piece_;
  std::int64_t done_bytes_ = 0;
  bool whole_ = false;  // compared, and found intact
  Digest digest_;
};

/// The elements of a loaded tensor.
inline TensorSlice slice_of(const StateTensor& tensor) { return {tensor.box, tensor.flat_begin, tensor.data.numel()}; }

/// Copies the elements that `piece` has of `tensor`, in the tensor's type, rounded to nearest even. Returns their
/// number. Without a `check` the caller has compared the file with its digest.
std::int64_t read_piece(StepReader& step, const Piece& piece, const StateTensor& tensor, PieceCheck* check = nullptr);

}  // namespace trireme::checkpoint
