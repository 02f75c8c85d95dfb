#include "io/checkpoint/checkpoint_shard.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <vector>

#include "io/h5/file.hpp"
#include "io/posix/block_writer.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/file_handle.hpp"
#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"

namespace trireme::io {
namespace {

using checkpoint::FileEntry;
using checkpoint::Piece;

/// Fills in a file whose structure already exists, rewriting the bytes between the datasets unchanged. The digest of
/// the entire file is thus known with its last byte.
class ShardStream {
 public:
  explicit ShardStream(const std::string& path)
      : path_(path), file_(retried([&] { return open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC); })), out_(path) {
    TRIREME_CHECK(file_, IoError, "cannot open {}: {}", path, std::strerror(errno));
    // A hint: nothing after the copied bytes is worth reading ahead yet.
    static_cast<void>(posix_fadvise(file_.get(), 0, 0, POSIX_FADV_RANDOM));
  }

  /// Copies the bytes from the current position to `end_bytes`.
  void copy_until(std::int64_t end_bytes) {
    std::vector<std::byte> block;
    while (position_ < end_bytes) {
      block.resize(static_cast<std::size_t>(std::min(end_bytes - position_, std::int64_t{1} << 20)));
      read_at(file_.get(), path_, reinterpret_cast<char*>(block.data()), block.size(), position_);
      append(block);
    }
  }
  void append(std::span<const std::byte> bytes) {
    digest_.update(bytes.data(), bytes.size());
    out_.write(position_, bytes);
    position_ += static_cast<std::int64_t>(bytes.size());
  }
  /// Copies the rest. Returns size and digest of the file, which is then on disk.
  FileEntry finish(const std::string& file_name) {
    struct stat status {};
    TRIREME_CHECK(fstat(file_.get(), &status) == 0, IoError, "cannot read {}: {}", path_, std::strerror(errno));
    copy_until(status.st_size);
    out_.finish();
    sync_to_disk(path_);
    // Drops the pages as a hint: the next reader should read the disk, not this machine's memory.
    static_cast<void>(posix_fadvise(file_.get(), 0, 0, POSIX_FADV_DONTNEED));
    return {file_name, position_, digest_.hex()};
  }

 private:
  const std::string& path_;
  Descriptor file_;
  BlockWriter out_;
  Digest digest_;
  std::int64_t position_ = 0;
};

void check_dataset(const h5::File& file, const Piece& piece) {
  const h5::Dataset dataset = file.dataset("/" + piece.dataset);
  TRIREME_CHECK(dataset.dtype() == piece.dtype && dataset.numel() == piece.slice.count &&
                    (piece.slice.count == 0 || dataset.file_offset() == piece.offset_bytes),
                CheckpointError, "{} is {} {} at byte {}; the manifest says {} elements of {} at byte {}",
                dataset.description(), name_of(dataset.dtype()), to_string(dataset.shape()), dataset.file_offset(),
                piece.slice.count, name_of(piece.dtype), piece.offset_bytes);
}

}  // namespace

checkpoint::ShardFile write_shard_file(const std::string& folder, const std::string& file_name,
                                       std::span<const checkpoint::ShardDataset> datasets) {
  const std::string path = folder + "/" + file_name;
  checkpoint::ShardFile shard;
  h5::File file = h5::File::create(path);
  for (const checkpoint::ShardDataset& source : datasets) {
    const h5::Dataset dataset = file.create_dataset("/" + source.name, source.dtype, source.shape);
    shard.offsets_bytes.push_back(std::max<std::int64_t>(0, dataset.file_offset()));
  }
  file.close();

  // The library places small datasets in gaps between others.
  std::vector<std::size_t> order(datasets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return shard.offsets_bytes[i]; });
  shard.digests.resize(datasets.size());
  ShardStream stream(path);
  for (const std::size_t i : order) {
    const ConstTensorView data = datasets[i].data();
    TRIREME_CHECK(data.dtype() == datasets[i].dtype && data.numel() == datasets[i].shape.numel(), ShapeError,
                  "{} {} elements do not fit into the dataset {} of {}", data.numel(), name_of(data.dtype()),
                  datasets[i].name, path);
    const std::span<const std::byte> bytes(data.data(), data.size_bytes());
    shard.digests[i] = digest(bytes.data(), bytes.size());
    if (bytes.empty()) continue;
    stream.copy_until(shard.offsets_bytes[i]);
    stream.append(bytes);
  }
  shard.entry = stream.finish(file_name);
  sync_to_disk(folder);
  return shard;
}

void check_shard_file(const std::string& folder, const checkpoint::Manifest& manifest, std::size_t file) {
  const std::string path = folder + "/" + manifest.files[file].name;
  const h5::File shard = h5::File::open(path, Symlinks::refuse);
  std::size_t pieces = 0;
  for (const std::vector<Piece>* list : {&manifest.blobs, &manifest.pieces}) {
    for (const Piece& piece : *list) {
      if (piece.file != file) continue;
      check_dataset(shard, piece);
      ++pieces;
    }
  }
  TRIREME_CHECK(pieces == shard.dataset_paths().size(), CheckpointError,
                "{} holds {} datasets, but the manifest lists {}", path, shard.dataset_paths().size(), pieces);
}

}  // namespace trireme::io
