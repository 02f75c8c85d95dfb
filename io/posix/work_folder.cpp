#include "io/posix/work_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "io/posix/durable_file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"

namespace trireme::io {
namespace {

constexpr const char* lock_name = "lock";

/// Returns whether a file is a lock or a finished part, which is named by its digest: a job leaves at least one.
bool is_own_name(std::string_view name) {
  constexpr std::size_t digest_digits = 32;
  return name.starts_with(lock_name) ||
         (name.size() == digest_digits && name.find_first_not_of("0123456789abcdef") == name.npos);
}

}  // namespace

WorkFolder::WorkFolder(std::string path, const std::string& target, std::set<std::string> kept)
    : path_(std::move(path)), kept_(std::move(kept)) {
  check_replaceable(target);
  TRIREME_CHECK(mkdir(path_.c_str(), 0777) == 0 || errno == EEXIST, IoError,
                "cannot write {}: its work folder {} cannot be created: {}", target, path_, std::strerror(errno));
  const std::vector<std::string> names = names_in(path_);
  const bool is_ours = names.empty() || std::ranges::any_of(names, is_own_name);
  TRIREME_CHECK(is_ours, IoError,
                "{} is needed for work, but holds files that this program did not leave there, {} first", path_,
                names.front());
  lock_ = std::make_unique<FolderLock>(path_ + "/" + lock_name, target);
  clear();
}

WorkFolder::~WorkFolder() {
  try {
    if (clear()) log::info("{} keeps the parts that are done for the next build of this corpus", path_);
  } catch (const Error& error) {
    log::warn("{} can be deleted: {}", path_, error.what());
  }
  lock_.reset();
  rmdir(path_.c_str());  // fails if files are kept or another job has just taken it
}

/// Removes all files except those kept; returns whether any are kept.
bool WorkFolder::clear() const {
  bool keeps = false;
  for (const std::string& name : names_in(path_)) {
    if (name == lock_name) continue;
    keeps |= kept_.contains(name);
    const std::string file = path_ + "/" + name;
    TRIREME_CHECK(kept_.contains(name) || unlink(file.c_str()) == 0 || errno == ENOENT, IoError, "cannot delete {}: {}",
                  file, std::strerror(errno));
  }
  return keeps;
}

}  // namespace trireme::io
