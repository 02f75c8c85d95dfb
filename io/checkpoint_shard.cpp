#include "io/checkpoint_shard.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/durable_file.hpp"
#include "io/file_handle.hpp"
#include "io/h5/file.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"

namespace trireme::io {
namespace {

using checkpoint::FileEntry;
using checkpoint::Piece;

/// Size and digest of the file as it is now.
FileEntry entry_of(const std::string& path, const std::string& file_name) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  TRIREME_CHECK(file, IoError, "cannot open {}: {}", path, std::strerror(errno));
  FileEntry entry{file_name, 0, {}};
  Digest digest;
  std::vector<std::byte> block(std::size_t{4} << 20);
  for (;;) {
    const ssize_t count = read(file.get(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    TRIREME_CHECK(count >= 0, IoError, "cannot read {}: {}", path, std::strerror(errno));
    if (count == 0) break;
    digest.update(block.data(), static_cast<std::size_t>(count));
    entry.size_bytes += count;
  }
  entry.digest = digest.hex();
  return entry;
}

void check_dataset(const h5::File& file, const Piece& piece) {
  const h5::Dataset dataset = file.dataset("/" + piece.dataset);
  TRIREME_CHECK(dataset.dtype() == piece.dtype && dataset.numel() == piece.part.count &&
                    (piece.part.count == 0 || dataset.file_offset() == piece.offset_bytes),
                CheckpointError, "{} is {} {} at byte {}; the manifest says {} elements of {} at byte {}",
                dataset.description(), name_of(dataset.dtype()), to_string(dataset.shape()), dataset.file_offset(),
                piece.part.count, name_of(piece.dtype), piece.offset_bytes);
}

}  // namespace

checkpoint::ShardFile write_shard_file(const std::string& folder, const std::string& file_name,
                                       std::span<const checkpoint::ShardDataset> datasets) {
  const std::string path = folder + "/" + file_name;
  checkpoint::ShardFile shard;
  h5::File file = h5::File::create(path);
  for (const checkpoint::ShardDataset& source : datasets) {
    h5::Dataset dataset = file.create_dataset("/" + source.name, source.data.dtype(), source.data.shape());
    dataset.write(source.data);
    shard.offsets_bytes.push_back(std::max<std::int64_t>(0, dataset.file_offset()));
  }
  file.close();
  sync_to_disk(path);
  shard.entry = entry_of(path, file_name);
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
                "{} holds {} datasets, of which the manifest knows {}", path, shard.dataset_paths().size(), pieces);
}

}  // namespace trireme::io
