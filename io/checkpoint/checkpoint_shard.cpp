#include "io/checkpoint/checkpoint_shard.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "io/h5/file.hpp"
#include "io/posix/direct_io.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"

namespace trireme::io {
namespace {

using checkpoint::FileEntry;
using checkpoint::Piece;
using nlohmann::json;

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
      read_at(file_.get(), path_, block.data(), block.size(), position_);
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

/// Hidden until it is complete, so that readers of the step skip it.
class ShardCopy final : public checkpoint::FileSink {
 public:
  ShardCopy(const std::string& folder, FileEntry entry)
      : entry_(std::move(entry)),
        final_path_(folder + "/" + entry_.name),
        path_(fmt::format("{}/.{}.{}", folder, entry_.name, unique_suffix())) {
    const Descriptor file(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    TRIREME_CHECK(file, IoError, "cannot create {}: {}", path_, std::strerror(errno));
    out_.emplace(path_);
  }
  ~ShardCopy() override {
    out_.reset();
    unlink(path_.c_str());  // absent after `finish`
  }
  ShardCopy& operator=(ShardCopy&&) = delete;

  void append(std::span<const std::byte> bytes) override {
    digest_.update(bytes.data(), bytes.size());
    out_->write(position_, bytes);
    position_ += static_cast<std::int64_t>(bytes.size());
  }
  void finish() override {
    out_->finish();
    TRIREME_CHECK(position_ == entry_.size_bytes && digest_.hex() == entry_.digest, CheckpointError,
                  "the copy {} does not have the bytes that were saved", final_path_);
    sync_to_disk(path_);
    rename_durably(path_, final_path_);
  }

 private:
  FileEntry entry_;
  std::string final_path_, path_;
  std::optional<BlockWriter> out_;
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

constexpr std::int64_t max_record_bytes = std::int64_t{1} << 28;

/// Returns the digest of the entire file; empty if it cannot be read or has another size.
std::string digest_of_file(const std::string& path, std::int64_t size_bytes) {
  if (!is_there(path) || regular_file_size(path, Symlinks::refuse) != size_bytes) return {};
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return {};
  Digest digest;
  std::vector<char> block(std::size_t{4} << 20);
  for (std::int64_t done = 0; done < size_bytes;) {
    const auto count = static_cast<std::size_t>(std::min(size_bytes - done, static_cast<std::int64_t>(block.size())));
    read_at(file.get(), path, block.data(), count, done);
    digest.update(block.data(), count);
    done += static_cast<std::int64_t>(count);
  }
  return digest.hex();
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

std::unique_ptr<checkpoint::FileSink> copy_of_shard(const std::string& folder, const FileEntry& file) {
  return std::make_unique<ShardCopy>(folder, file);
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

std::string shard_record_name(const std::string& file_name) { return "." + file_name + ".json"; }

void write_shard_record(const std::string& folder, const checkpoint::ShardFile& file,
                        std::span<const checkpoint::ShardDataset> datasets) {
  json record{{"size_bytes", file.entry.size_bytes}, {"digest", file.entry.digest}, {"datasets", json::array()}};
  for (std::size_t i = 0; i < datasets.size(); ++i) {
    record["datasets"].push_back({{"name", datasets[i].name},
                                  {"size_bytes", datasets[i].size_bytes()},
                                  {"offset_bytes", file.offsets_bytes[i]},
                                  {"digest", file.digests[i]}});
  }
  write_durably(folder + "/" + shard_record_name(file.entry.name), record.dump());
}

std::optional<checkpoint::ShardFile> recorded_shard(const std::string& folder, const std::string& file_name,
                                                    std::span<const checkpoint::ShardDataset> datasets) {
  const std::string path = folder + "/" + shard_record_name(file_name);
  if (!is_there(path)) return std::nullopt;
  checkpoint::ShardFile file;
  try {
    const json record = json::parse(read_whole_file(path, max_record_bytes));
    file.entry = {file_name, record.at("size_bytes").get<std::int64_t>(), record.at("digest").get<std::string>()};
    if (record.at("datasets").size() != datasets.size()) return std::nullopt;
    for (std::size_t i = 0; i < datasets.size(); ++i) {
      const json& dataset = record.at("datasets").at(i);
      if (dataset.at("name") != datasets[i].name || dataset.at("size_bytes") != datasets[i].size_bytes()) {
        return std::nullopt;
      }
      file.offsets_bytes.push_back(dataset.at("offset_bytes").get<std::int64_t>());
      file.digests.push_back(dataset.at("digest").get<std::string>());
    }
  } catch (const json::exception&) {
    return std::nullopt;
  }
  if (digest_of_file(folder + "/" + file_name, file.entry.size_bytes) != file.entry.digest) return std::nullopt;
  return file;
}

}  // namespace trireme::io
