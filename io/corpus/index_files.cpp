#include "io/corpus/index_files.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "io/posix/durable_file.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/mapped_file.hpp"
#include "src/base/hash.hpp"
#include "src/base/log.hpp"

namespace trireme::io {
namespace {

// Constants of the format; io/README.md describes it.
constexpr std::string_view index_magic("trireme-index-1\n", 16);
constexpr std::size_t digest_digits = 32;
constexpr std::size_t alignment = 64;
constexpr std::size_t max_arrays = 16;
constexpr std::size_t chunk_bytes = std::size_t{4} << 20;

std::size_t aligned(std::size_t offset) { return (offset + alignment - 1) / alignment * alignment; }

/// Passes the content after the digest to `sink`, chunk by chunk.
template <class Sink>
void give_content(const std::string& description, const data::IndexCache::Arrays& arrays, const Sink& sink) {
  constexpr std::byte zeros[alignment]{};
  std::vector<std::uint64_t> sizes{description.size(), arrays.size()};
  for (const auto& array : arrays) sizes.push_back(array.size());
  sink(std::as_bytes(std::span(sizes)));
  sink(std::as_bytes(std::span(description)));
  std::size_t offset = index_magic.size() + digest_digits + sizes.size() * 8 + description.size();
  for (const auto& array : arrays) {
    sink(std::span(zeros).first(aligned(offset) - offset));
    sink(array);
    offset = aligned(offset) + array.size();
  }
}

void write(const std::string& path, const std::string& description, const data::IndexCache::Arrays& arrays) {
  Digest digest;
  give_content(description, arrays,
               [&](std::span<const std::byte> chunk) { digest.update(chunk.data(), chunk.size()); });
  FileOutput out(path);
  out.write_bytes(std::as_bytes(std::span(index_magic)));
  const std::string digits = digest.hex();
  out.write_bytes(std::as_bytes(std::span(digits)));
  give_content(description, arrays, [&](std::span<const std::byte> chunk) { out.write_bytes(chunk); });
  out.close();
}

/// Returns the digest of a mapping from `offset` on. Releases each chunk's memory once hashed: a rank reads only a part
/// of a sample order.
std::string digest_from(const MappedFile& mapping, std::size_t offset) {
  Digest digest;
  for (std::span<const std::byte> rest = mapping.bytes().subspan(offset); !rest.empty();) {
    const auto chunk = rest.first(std::min(rest.size(), chunk_bytes));
    digest.update(chunk.data(), chunk.size());
    mapping.release(chunk);
    rest = rest.subspan(chunk.size());
  }
  return digest.hex();
}

/// Reads a file. Throws DataError if it is damaged, or holds another description.
data::IndexCache::Kept read(const std::string& path, const std::string& description) {
  const auto mapping = std::make_shared<MappedFile>(path);
  const std::span<const std::byte> all = mapping->bytes();
  const ByteReader bytes(path, all);
  TRIREME_CHECK(all.size() > index_magic.size() && std::memcmp(all.data(), index_magic.data(), index_magic.size()) == 0,
                DataError, "{} is not a file of this cache", path);
  std::size_t offset = index_magic.size() + digest_digits;
  TRIREME_CHECK(all.size() > offset &&
                    digest_from(*mapping, offset) ==
                        std::string_view(reinterpret_cast<const char*>(all.data()), offset).substr(index_magic.size()),
                DataError, "{} is damaged or cut short", path);
  const auto description_bytes = bytes.at<std::uint64_t>(offset, "a size");
  const auto count = bytes.at<std::uint64_t>(offset + 8, "a number");
  offset += 16;
  TRIREME_CHECK(description_bytes == description.size() && count <= max_arrays &&
                    all.size() - offset >= count * 8 + description.size() &&
                    std::memcmp(all.data() + offset + count * 8, description.data(), description.size()) == 0,
                DataError, "{} belongs to another order of samples", path);
  std::size_t begin = offset + count * 8 + description.size();
  data::IndexCache::Kept kept{{}, mapping};
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto size = bytes.at<std::uint64_t>(offset + i * 8, "a size");
    begin = aligned(begin);
    TRIREME_CHECK(begin <= all.size() && size <= all.size() - begin, DataError, "{} is cut short", path);
    kept.arrays.push_back(all.subspan(begin, size));
    begin += size;
  }
  return kept;
}

}  // namespace

IndexFiles::IndexFiles(std::string folder, std::size_t min_bytes) : folder_(std::move(folder)), min_bytes_(min_bytes) {}

std::string IndexFiles::folder_of(const data::TokenStore& store) const {
  if (!folder_.empty()) return folder_;
  return (std::filesystem::path(store.name()).parent_path() / "index-cache").string();
}

std::string IndexFiles::path_of(const data::SampleOrder& order) const {
  return folder_of(order.store) + "/" + digest(order.description.data(), order.description.size()) + ".index";
}

data::IndexCache::Kept IndexFiles::read_sound(const std::string& path, const data::SampleOrder& order) {
  try {
    return read(path, order.description);
  } catch (const Error& error) {
    log::warn("{}: it is computed and written again", error.what());
    return {};
  }
}

data::IndexCache::Kept IndexFiles::find(const data::SampleOrder& order) {
  const std::string path = path_of(order);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  Kept kept = read_sound(path, order);
  if (kept.owner) log::info("order of {}: read from {}", order.name, path);
  return kept;
}

data::IndexCache::Kept IndexFiles::keep(const data::SampleOrder& order, const Arrays& arrays) {
  std::size_t size = 0;
  for (const auto& array : arrays) size += array.size();
  const std::string folder = folder_of(order.store);
  if (size < min_bytes_ || refused_.contains(folder)) return {};
  try {
    make_folders(folder);
    const TemporaryFile file(path_of(order));
    write(file.path(), order.description, arrays);
    // Not synced to disk: the digest detects an incomplete file after a crash.
    TRIREME_CHECK(std::rename(file.path().c_str(), file.target().c_str()) == 0, IoError, "cannot rename {} to {}: {}",
                  file.path(), file.target(), std::strerror(errno));
    log::info("order of {}: stored in {}", order.name, file.target());
    return read_sound(file.target(), order);
  } catch (const Error& error) {
    refused_.insert(folder);
    log::warn(
        "storing the order of samples failed: {}; every start computes it again. Try another folder: <data_cache_path>",
        error.what());
    return {};
  }
}

}  // namespace trireme::io
