#include "src/checkpoint/piece_reader.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/base/check.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t digest_block_bytes = std::int64_t{8} << 20;

/// Reads pieces of one file at ascending offsets. Small ones that lie close together are read together and then copied:
/// a column of a matrix is many ranges of a few bytes.
class SievingReader {
 public:
  SievingReader(StepReader& step, std::size_t file) : step_(step), file_(file) {}

  void add(std::int64_t offset_bytes, std::span<std::byte> out) {
    const std::int64_t end = offset_bytes + static_cast<std::int64_t>(out.size());
    if (!wanted_.empty() && (offset_bytes - end_ > max_gap_bytes || end - begin_ > max_read_bytes)) flush();
    if (wanted_.empty()) begin_ = offset_bytes;
    wanted_.push_back({offset_bytes, out});
    end_ = end;
  }

  void flush() {
    if (wanted_.size() == 1) {
      step_.read(file_, begin_, wanted_.front().out);
    } else if (wanted_.size() > 1) {
      buffer_.resize(static_cast<std::size_t>(end_ - begin_));
      step_.read(file_, begin_, buffer_);
      for (const Wanted& wanted : wanted_) {
        std::memcpy(wanted.out.data(), buffer_.data() + (wanted.offset_bytes - begin_), wanted.out.size());
      }
    }
    wanted_.clear();
  }

 private:
  static constexpr std::int64_t max_gap_bytes = std::int64_t{64} << 10;
  static constexpr std::int64_t max_read_bytes = std::int64_t{4} << 20;
  struct Wanted {
    std::int64_t offset_bytes;
    std::span<std::byte> out;
  };
  StepReader& step_;
  std::size_t file_;
  std::int64_t begin_ = 0;
  std::int64_t end_ = 0;
  std::vector<Wanted> wanted_;
  std::vector<std::byte> buffer_;
};

/// to = from, rounded to nearest even, of 16-bit types via fp32.
void convert(ConstTensorView from, TensorView to) {
  dispatch_float(from.dtype(), [&]<class From>() {
    dispatch_float(to.dtype(), [&]<class To>() {
      const From* const values = from.as<From>();
      To* const rounded = to.as<To>();
      for (std::int64_t i = 0; i < to.numel(); ++i) {
        rounded[i] = To(static_cast<Accumulation<To>>(static_cast<Accumulation<From>>(values[i])));
      }
    });
  });
}

void require_bytes(const StepReader& step, const Piece& piece, const std::string& found) {
  TRIREME_CHECK(found == piece.digest, CheckpointError,
                "{}: the tensor {} in {} does not have the bytes that were saved", step.description(), piece.tensor,
                step.manifest().files[piece.file].name);
}

}  // namespace

/// Digest of a range of a file; reads it block by block.
std::string digest_of(StepReader& step, std::size_t file, std::int64_t offset_bytes, std::int64_t size_bytes) {
  Digest digest;
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(size_bytes, digest_block_bytes)));
  for (std::int64_t done = 0; done < size_bytes;) {
    const auto count = static_cast<std::size_t>(std::min(size_bytes - done, digest_block_bytes));
    step.read(file, offset_bytes + done, std::span(block.data(), count));
    digest.update(block.data(), count);
    done += static_cast<std::int64_t>(count);
  }
  return digest.hex();
}

void PieceCheck::before(std::span<const ElementRange> ranges) {
  if (whole_) return;
  const auto element_bytes = static_cast<std::int64_t>(size_of(piece_.dtype));
  std::int64_t next = done_bytes_ / element_bytes;
  for (const ElementRange& range : ranges) {
    if (range.from != next) {
      require_bytes(step_, piece_, digest_of(step_, piece_.file, piece_.offset_bytes, piece_.size_bytes()));
      whole_ = true;
      return;
    }
    next += range.count;
  }
}

void PieceCheck::add(std::span<const std::byte> elements) {
  if (whole_) return;
  digest_.update(elements.data(), elements.size());
  done_bytes_ += static_cast<std::int64_t>(elements.size());
  if (done_bytes_ < piece_.size_bytes()) return;
  require_bytes(step_, piece_, digest_.hex());
  whole_ = true;
}

void PieceCheck::finish() {
  std::vector<std::byte> block;
  while (!whole_ && done_bytes_ > 0) {
    block.resize(static_cast<std::size_t>(std::min(piece_.size_bytes() - done_bytes_, digest_block_bytes)));
    step_.read(piece_.file, piece_.offset_bytes + done_bytes_, block);
    add(block);
  }
}

std::int64_t read_piece(StepReader& step, const Piece& piece, const StateTensor& tensor, PieceCheck* check) {
  const auto element_bytes = static_cast<std::int64_t>(size_of(piece.dtype));
  const bool same_type = piece.dtype == tensor.data.dtype();
  std::vector<ElementRange> ranges;
  std::int64_t copied = 0;
  for_each_common_range(piece.slice, slice_of(tensor), [&](const ElementRange& range) {
    ranges.push_back(range);
    copied += range.count;
  });
  if (check != nullptr) check->before(ranges);
  // Buffer for elements of another type, range by range.
  std::vector<std::byte> stored(same_type ? 0 : static_cast<std::size_t>(copied * element_bytes));
  std::byte* next = stored.data();
  const auto place_of = [&](const ElementRange& range) {
    const std::int64_t size_bytes = range.count * element_bytes;
    std::byte* const to = same_type ? tensor.data.data() + range.to * element_bytes : next;
    next += same_type ? 0 : size_bytes;
    return std::span(to, static_cast<std::size_t>(size_bytes));
  };
  SievingReader reader(step, piece.file);
  for (const ElementRange& range : ranges) reader.add(piece.offset_bytes + range.from * element_bytes, place_of(range));
  reader.flush();
  next = stored.data();
  for (const ElementRange& range : ranges) {
    const std::span<const std::byte> bytes = place_of(range);
    if (check != nullptr) {
      check->add(bytes);
    } else if (range.count == piece.slice.count) {
      require_bytes(step, piece, digest(bytes.data(), bytes.size()));
    }
  }
  if (same_type) return copied;
  const ConstTensorView all(stored.data(), piece.dtype, {copied});
  std::int64_t from = 0;
  for (const ElementRange& range : ranges) {
    convert(all.flat(from, range.count), tensor.data.flat(range.to, range.count));
    from += range.count;
  }
  return copied;
}

}  // namespace trireme::checkpoint
