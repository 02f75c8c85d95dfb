#include "io/posix/work_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "io/posix/folder.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"

namespace trireme::io {
namespace {
constexpr const char* lock_name = "lock";
}

WorkFolder::WorkFolder(std::string path, const std::string& target) : path_(std::move(path)) {
  TRIREME_CHECK(mkdir(path_.c_str(), 0777) == 0 || errno == EEXIST, IoError, "cannot create the folder {}: {}", path_,
                std::strerror(errno));
  const std::vector<std::string> names = names_in(path_);
  const bool is_ours =
      names.empty() || std::ranges::any_of(names, [](const std::string& name) { return name.starts_with(lock_name); });
  TRIREME_CHECK(is_ours, IoError,
                "{} is needed for work, but holds files that this program did not leave there, {} first", path_,
                names.front());
  lock_ = std::make_unique<FolderLock>(file(lock_name), target);
  clear();
}

WorkFolder::~WorkFolder() {
  try {
    clear();
  } catch (const Error& error) {
    log::warn("{} can be deleted: {}", path_, error.what());
  }
  lock_.reset();
  rmdir(path_.c_str());  // stays where another job has just taken it
}

void WorkFolder::clear() const {
  for (const std::string& name : names_in(path_)) {
    TRIREME_CHECK(name == lock_name || unlink(file(name).c_str()) == 0 || errno == ENOENT, IoError,
                  "cannot delete {}: {}", file(name), std::strerror(errno));
  }
}

}  // namespace trireme::io
