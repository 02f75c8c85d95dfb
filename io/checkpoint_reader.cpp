#include "io/checkpoint_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/folder.hpp"
#include "io/manifest_json.hpp"
#include "io/regular_file.hpp"
#include "src/base/check.hpp"

namespace trireme::io {
namespace {

constexpr std::int64_t greatest_manifest_bytes = std::int64_t{1} << 30;

/// A file that is missing, or is none, is damage to the checkpoint; one that cannot be read is not.
std::int64_t size_of_part(const std::string& path) {
  struct stat status {};
  TRIREME_CHECK(lstat(path.c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR && errno != ELOOP),
                CheckpointError, "the checkpoint's file {} is missing", path);
  return regular_file_size(path, Symlinks::refuse);
}

}  // namespace

CheckpointReader::CheckpointReader(std::string folder) : folder_(std::move(folder)) {
  const std::string path = folder_ + "/" + manifest_name;
  size_of_part(path);
  manifest_ = manifest_from_json(read_whole_file(path, greatest_manifest_bytes), path);
}

std::int64_t CheckpointReader::file_size(std::size_t file) { return size_of_part(file_path(file)); }

void CheckpointReader::read(std::size_t file, std::int64_t offset_bytes, std::span<std::byte> out) {
  const std::string path = file_path(file);
  if (!descriptor_ || open_file_ != file) {
    size_of_part(path);
    descriptor_.reset(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    TRIREME_CHECK(descriptor_, IoError, "cannot open {}: {}", path, std::strerror(errno));
    open_file_ = file;
  }
  while (!out.empty()) {
    const ssize_t count = pread(descriptor_.get(), out.data(), out.size(), offset_bytes);
    if (count < 0 && errno == EINTR) continue;
    TRIREME_CHECK(count >= 0, IoError, "cannot read {} bytes at {} of {}: {}", out.size(), offset_bytes, path,
                  std::strerror(errno));
    TRIREME_CHECK(count > 0, CheckpointError, "{} ends before byte {}", path,
                  offset_bytes + static_cast<std::int64_t>(out.size()));
    out = out.subspan(static_cast<std::size_t>(count));
    offset_bytes += count;
  }
}

bool looks_complete(const std::string& step_folder) {
  try {
    CheckpointReader step(step_folder);
    if (step.manifest().format_version > checkpoint::Manifest::current_version) return true;
    checkpoint::validate(step.manifest());
    for (std::size_t i = 0; i < step.manifest().files.size(); ++i) {
      if (step.file_size(i) != step.manifest().files[i].size_bytes) return false;
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace trireme::io
