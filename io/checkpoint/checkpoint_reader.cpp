#include "io/checkpoint/checkpoint_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/checkpoint/manifest_json.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/checkpoint/load.hpp"

namespace trireme::io {
namespace {

using checkpoint::Manifest;

constexpr std::int64_t max_manifest_bytes = std::int64_t{1} << 30;
constexpr std::int64_t requested_bytes = std::int64_t{16} << 20;

/// Throws CheckpointError if `path` does not exist: a missing file is damage, an unreadable one is not.
void require_there(const std::string& path) {
  struct stat status {};
  TRIREME_CHECK(lstat(path.c_str(), &status) == 0 || !is_absent(errno), CheckpointError,
                "the checkpoint's file {} is missing", path);
}

/// Runs `read`, which reads the file at `path`.
template <class Read>
auto reading(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const IoError&) {
    require_there(path);
    throw;
  }
}

std::int64_t size_of_shard(const std::string& path) {
  return reading(path, [&] { return regular_file_size(path, Symlinks::refuse); });
}

/// Step number in the folder's name; -1 if a user renamed it.
std::int64_t step_in(const std::string& folder) {
  const std::string name = folder.substr(folder.rfind('/') + 1);
  return std::max(number_in(name, step_prefix), number_in(name, trash_prefix));
}

}  // namespace

std::int64_t number_in(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return -1;
  name.remove_prefix(prefix.size());
  if (name.starts_with('-')) return -1;
  const auto number = take_number<std::int64_t>(name);
  return number && (name.empty() || name.front() == '-') ? *number : -1;
}

bool belongs_to_step(const std::string& file) {
  const std::size_t end = std::min(file.rfind('/'), file.size());
  const std::string name = file.substr(std::min(end + 1, file.size()));
  return step_in(file.substr(0, end)) >= 0 &&
         (name == manifest_name || (name.starts_with("rank-") && name.ends_with(".h5")));
}

std::string manifest_text_of(const std::string& step_folder) {
  const std::string path = step_folder + "/" + manifest_name;
  return reading(path, [&] { return read_whole_file(path, max_manifest_bytes); });
}

CheckpointReader::CheckpointReader(std::string folder) : folder_(std::move(folder)) {
  set_manifest(manifest_text_of(folder_));
}

CheckpointReader::CheckpointReader(std::string folder, const std::string& manifest_text) : folder_(std::move(folder)) {
  set_manifest(manifest_text);
  const std::string path = folder_ + "/" + manifest_name;
  std::string here(manifest_head_bytes, '\0');
  reading(path, [&] {
    const Descriptor file(retried([&] { return ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC); }));
    TRIREME_CHECK(file, IoError, "cannot open {}: {}", path, std::strerror(errno));
    read_at(file.get(), path, here.data(), here.size(), 0);
  });
  TRIREME_CHECK(manifest_text.starts_with(here), CheckpointError,
                "{}: ranks see different manifests; is the folder the same on all nodes?", path);
}

void CheckpointReader::set_manifest(const std::string& text) {
  const std::string path = folder_ + "/" + manifest_name;
  manifest_ = manifest_from_json(text, path);
  const std::int64_t expected = step_in(folder_);
  TRIREME_CHECK(manifest_.format_version > Manifest::current_version || expected < 0 || manifest_.step == expected,
                CheckpointError,
                "{} is of step {}, its folder's name says {}: the folder was renamed or its files copied", path,
                manifest_.step, expected);
}

std::int64_t CheckpointReader::file_size(std::size_t file) { return size_of_shard(file_path(file)); }

std::vector<std::string> CheckpointReader::foreign_files() {
  std::vector<std::string> foreign;
  for (const std::string& name : names_in(folder_)) {
    const bool known = name == manifest_name || name.starts_with('.') ||
                       std::ranges::find(manifest_.files, name, &checkpoint::FileEntry::name) != manifest_.files.end();
    if (!known) foreign.push_back(name);
  }
  return foreign;
}

/// Wraps pread; opens the file first if another one is open. Requests the bytes behind a consecutive read: the disk
/// reads them while the caller works.
std::ptrdiff_t CheckpointReader::read_some(std::size_t file, std::int64_t offset_bytes, std::span<std::byte> out) {
  if (!descriptor_ || open_file_ != file) {
    const std::string path = file_path(file);
    size_of_shard(path);
    descriptor_.reset(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!descriptor_) return -1;
    open_file_ = file;
    read_end_ = 0;
  }
  const std::int64_t end = offset_bytes + static_cast<std::int64_t>(out.size());
  if (offset_bytes == read_end_) posix_fadvise(descriptor_.get(), end, requested_bytes, POSIX_FADV_WILLNEED);
  read_end_ = end;
  const ssize_t count = pread(descriptor_.get(), out.data(), out.size(), offset_bytes);
  if (count < 0) {
    const int error = errno;
    descriptor_.reset();  // a stale handle stays stale until the file is opened again
    errno = error;
  }
  return count;
}

void CheckpointReader::read(std::size_t file, std::int64_t offset_bytes, std::span<std::byte> out) {
  const std::string path = file_path(file);
  if (prefetcher_.take(path, offset_bytes, out)) return;
  while (!out.empty()) {
    const std::ptrdiff_t count = retried([&] { return read_some(file, offset_bytes, out); });
    if (count < 0) {
      const int error = errno;
      require_there(path);
      throw IoError("cannot read {} bytes at {} of {}: {}", out.size(), offset_bytes, path, std::strerror(error));
    }
    TRIREME_CHECK(count > 0, CheckpointError, "{} ends before byte {}", path,
                  offset_bytes + static_cast<std::int64_t>(out.size()));
    out = out.subspan(static_cast<std::size_t>(count));
    offset_bytes += count;
  }
}

}  // namespace trireme::io
