#include "io/checkpoint/checkpoint_shard.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "io/h5/file.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/file_handle.hpp"
#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"

namespace trireme::io {
namespace {

using checkpoint::FileEntry;
using checkpoint::Piece;

/// Size and digest of the file as it is now. IoError where the bytes of a dataset are not those that were to be
/// written: the HDF5 library does not report every write that failed.
FileEntry read_back(const std::string& path, const std::string& file_name,
                    std::span<const checkpoint::ShardDataset> datasets, const checkpoint::ShardFile& written) {
  const std::vector<std::int64_t>& offsets_bytes = written.offsets_bytes;
  const Descriptor file(retried([&] { return open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC); }));
  TRIREME_CHECK(file, IoError, "cannot open {}: {}", path, std::strerror(errno));
  std::vector<std::size_t> order(datasets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return offsets_bytes[i]; });
  auto next = order.begin();

  FileEntry entry{file_name, 0, {}};
  Digest digest;
  auto digest_of_next = std::make_unique<Digest>();
  std::vector<std::byte> block(std::size_t{4} << 20);
  for (;;) {
    const ssize_t count = retried([&] { return read(file.get(), block.data(), block.size()); });
    TRIREME_CHECK(count >= 0, IoError, "cannot read {}: {}", path, std::strerror(errno));
    if (count == 0) break;
    digest.update(block.data(), static_cast<std::size_t>(count));
    const std::int64_t begin = std::exchange(entry.size_bytes, entry.size_bytes + count);
    // The datasets' parts in this block; `next` is the first one that does not end before it.
    while (next != order.end() && offsets_bytes[*next] < entry.size_bytes) {
      const std::int64_t data_begin = offsets_bytes[*next];
      const std::int64_t data_end = data_begin + datasets[*next].size_bytes();
      const std::int64_t from = std::max(begin, data_begin);
      const std::int64_t to = std::min(entry.size_bytes, data_end);
      if (to > from) digest_of_next->update(block.data() + (from - begin), static_cast<std::size_t>(to - from));
      if (data_end > entry.size_bytes) break;
      TRIREME_CHECK(digest_of_next->hex() == written.digests[*next], IoError,
                    "{} does not hold the bytes of {} that were written", path, datasets[*next].name);
      digest_of_next = std::make_unique<Digest>();
      ++next;
    }
  }
  TRIREME_CHECK(next == order.end(), IoError, "{} ends before the bytes of {} that were written", path,
                datasets[*next].name);
  entry.digest = digest.hex();
  return entry;
}

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
  const Descriptor early(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  TRIREME_CHECK(early, IoError, "cannot open {}: {}", path, std::strerror(errno));
  for (const checkpoint::ShardDataset& source : datasets) {
    h5::Dataset dataset = file.create_dataset("/" + source.name, source.dtype, source.shape);
    const ConstTensorView data = source.data();
    dataset.write(data.reshape(source.shape));
    shard.digests.push_back(digest(data.data(), data.size_bytes()));
    const std::int64_t offset_bytes = std::max<std::int64_t>(0, dataset.file_offset());
    shard.offsets_bytes.push_back(offset_bytes);
    // A hint: the disk works while the rest is written and read back. What counts is the call below that waits for it.
    static_cast<void>(
        sync_file_range(early.get(), offset_bytes, static_cast<off64_t>(source.size_bytes()), SYNC_FILE_RANGE_WRITE));
  }
  file.close();
  shard.entry = read_back(path, file_name, datasets, shard);
  sync_to_disk(path);
  sync_to_disk(folder);
  // Drops the pages as a hint: the next reader should read the disk, not this machine's memory.
  static_cast<void>(posix_fadvise(early.get(), 0, 0, POSIX_FADV_DONTNEED));
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
