#include "io/posix/folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "io/posix/durable_file.hpp"
#include "io/posix/file.hpp"
#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/base/machine.hpp"

namespace trireme::io {
namespace {

struct DirectoryTraits {
  using Handle = DIR*;
  static Handle null() { return nullptr; }
  static void close(Handle directory) noexcept { closedir(directory); }
};

void list_files(const std::string& path, int levels, std::string& text) {
  struct stat status {};
  if (retried([&] { return stat(path.c_str(), &status); }) != 0) throw_system_error("cannot look at " + path, errno);
  if (!S_ISDIR(status.st_mode)) {
    text += fmt::format("{} {} {} {}\n", path, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  } else if (levels > 0) {
    for (const std::string& name : names_in(path)) list_files(path + "/" + name, levels - 1, text);
  }
}

}  // namespace

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  const int result = retried([&] {
    names.clear();
    const UniqueHandle<DirectoryTraits> directory(opendir(folder.c_str()));
    if (!directory) return errno == ENOENT ? 0 : -1;
    for (errno = 0; const dirent* entry = readdir(directory.get()); errno = 0) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    return errno == 0 ? 0 : -1;
  });
  TRIREME_CHECK(result == 0, IoError, "cannot list {}: {}", folder, std::strerror(errno));
  std::ranges::sort(names);
  return names;
}

std::string full_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  std::filesystem::path full = absolute.lexically_normal();
  try {  // libstdc++ 12 throws, too, where there is an error code: for a deleted file in /proc/self/fd
    full = std::filesystem::weakly_canonical(absolute);
  } catch (const std::filesystem::filesystem_error&) {
  }
  return (full.has_filename() ? full : full.parent_path()).string();
}

bool is_folder(const std::string& path) {
  struct stat status {};
  const int result = retried([&] { return lstat(path.c_str(), &status); });
  TRIREME_CHECK(result == 0 || is_absent(errno), IoError, "cannot look for {}: {}", path, std::strerror(errno));
  return result == 0 && S_ISDIR(status.st_mode);
}

bool is_there(const std::string& path) {
  const int result = retried([&] { return access(path.c_str(), F_OK); });
  TRIREME_CHECK(result == 0 || is_absent(errno), IoError, "cannot look for {}: {}", path, std::strerror(errno));
  return result == 0;
}

void check_there(const std::string& path) {
  TRIREME_CHECK(is_there(path), IoError, "cannot open {}: {}", path, std::strerror(ENOENT));
}

std::string files_digest(const std::string& path) {
  std::string text;
  list_files(path, 8, text);
  return digest(text.data(), text.size());
}

void make_folders(const std::string& path) {
  std::filesystem::path folder;  // component by component: LINK/.. is not the folder that holds LINK
  for (const std::filesystem::path& component : std::filesystem::path(path)) {
    const std::filesystem::path above = folder;
    folder /= component;
    if (mkdir(folder.c_str(), 0777) == 0) {
      sync_to_disk(above.empty() ? "." : above.string());
    } else {
      const int error = errno;
      std::error_code ignored;
      TRIREME_CHECK(std::filesystem::is_directory(folder, ignored), IoError, "cannot create the folder {}: {}",
                    folder.string(), std::strerror(error));
    }
  }
}

void remove_folder(const std::string& folder, std::string_view first) {
  std::vector<std::string> names = names_in(folder);
  std::ranges::stable_partition(names, [&](const std::string& name) { return name == first; });
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    TRIREME_CHECK(unlink(path.c_str()) == 0 || errno == ENOENT, IoError, "cannot delete {}: {}", path,
                  std::strerror(errno));
  }
  TRIREME_CHECK(rmdir(folder.c_str()) == 0 || errno == ENOENT, IoError, "cannot delete the folder {}: {}", folder,
                std::strerror(errno));
}

std::int64_t free_bytes(const std::string& path) {
  struct statvfs status {};
  TRIREME_CHECK(statvfs(path.c_str(), &status) == 0, IoError, "cannot ask for the free space of {}: {}", path,
                std::strerror(errno));
  const auto free = static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
  struct statfs kind {};
  const bool is_memory = statfs(path.c_str(), &kind) == 0 && kind.f_type == TMPFS_MAGIC;
  return is_memory ? std::min(free, machine_memory().available_bytes) : free;
}

void write_durably(const std::string& path, std::string_view bytes) {
  const std::string new_path = path + ".new";
  try {
    write_and_sync(new_path, bytes);
    rename_durably(new_path, path);
  } catch (...) {
    unlink(new_path.c_str());
    throw;
  }
}

void check_writable(const std::string& path) { const TemporaryFile probe(path); }

std::string unique_suffix() {
  static std::atomic<std::uint64_t> calls = 0;
  const auto now = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  return fmt::format("{:08x}", splitmix64(now ^ static_cast<std::uint64_t>(getpid()) << 32, ++calls) >> 32);
}

}  // namespace trireme::io
