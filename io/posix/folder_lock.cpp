#include "io/posix/folder_lock.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/base/log.hpp"
#include "src/base/machine.hpp"

namespace trireme::io {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::duration<double> bound() {
  const char* text = std::getenv("TRIREME_LOCK_WAIT");
  if (text == nullptr || *text == '\0') return std::chrono::seconds(30);
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  TRIREME_CHECK(*end == '\0' && seconds >= 0 && seconds <= 86400, ConfigError,
                "TRIREME_LOCK_WAIT={} is not a number of seconds: give one from 0 to 86400 or unset it", text);
  return std::chrono::duration<double>(seconds);
}

/// Returns a process's start time in kernel ticks; empty if it has ended: it does not exist or is a zombie, which may
/// linger in containers. "-" if it may live, but is hidden (hidepid).
std::string start_time(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  std::getline(file, line);
  // "pid (name) state ...": the name is arbitrary; the state is field 3, the number of threads 20, the start time 22.
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) {
    const int number = std::atoi(pid.c_str());
    return number > 0 && kill(number, 0) != 0 && errno == ESRCH ? "" : "-";
  }
  std::istringstream fields(line.substr(name_end + 1));
  std::array<std::string, 20> values;
  for (std::string& value : values) fields >> value;
  const bool ended = values[0] == "Z" && values[17] == "1";
  return ended ? "" : values[19];
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

/// Returns the namespace in which numbers of processes are unique.
std::string pid_namespace() {
  std::array<char, 64> name{};
  const ssize_t length = readlink("/proc/self/ns/pid", name.data(), name.size());
  return length > 0 ? std::string(name.data(), static_cast<std::size_t>(length)) : "-";
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? "-" : value;
}

std::string own_content() {
  const std::string pid = std::to_string(getpid());
  // SLURM counts the job's returns to the queue, and the job's script the starts of its ranks since then.
  return fmt::format(
      "host {}\npid {}\npid_namespace {}\nstarted {}\nboot {}\nslurm_job {}\nslurm_restart {}.{}\nlock {}\n",
      host_name(), pid, pid_namespace(), start_time(pid), boot_id(), environment("SLURM_JOB_ID"),
      environment("SLURM_RESTART_COUNT"), environment("TRIREME_RESTART"), unique_suffix());
}

using Fields = std::map<std::string, std::string>;

Fields fields_of(const std::string& content) {
  Fields fields;
  std::istringstream stream(content);
  for (std::string key, value; stream >> key >> value;) fields[key] = value;
  return fields;
}

std::string description(Fields fields) {
  return fmt::format("process {} on host {}{}", fields["pid"], fields["host"],
                     fields["slurm_job"] == "-" ? "" : ", SLURM job " + fields["slurm_job"]);
}

/// Returns the reason why the owner is certainly dead; empty if it may be alive.
std::string proof_of_death(Fields owner, Fields own) {
  if (owner["slurm_job"] != "-" && owner["slurm_job"] == own["slurm_job"] &&
      owner["slurm_restart"] != own["slurm_restart"]) {
    return "it was an earlier attempt of this SLURM job";
  }
  if (owner["host"] != own["host"]) return {};
  if (owner["boot"] != own["boot"]) return "the host has rebooted since";
  // Containers on one host do not see each other's processes.
  if (owner["pid_namespace"] != own["pid_namespace"]) return {};
  const std::string started = start_time(owner["pid"]);
  return started != owner["started"] && started != "-" ? "its process no longer exists" : "";
}

/// Returns the content of the lock file; empty if none. It may appear or vanish during the read.
std::string content_of(const std::string& path) {
  for (int attempt = 0;; ++attempt) {
    if (access(path.c_str(), F_OK) != 0 && errno == ENOENT) return {};
    try {
      return read_whole_file(path, 4096);
    } catch (const IoError&) {
      if (attempt == 10) throw;
    }
  }
}

}  // namespace

bool LockWait::pause(const std::string& locked, const std::string& owner) {
  if (!end_) {
    const std::chrono::duration<double> wait = bound();
    end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(wait);
    if (wait.count() > 0) {
      log::info("{} is in use by {}: waiting at most {:g} s for its end", locked, owner, wait.count());
    }
  }
  if (Clock::now() >= *end_) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return true;
}

FolderLock::FolderLock(std::string path, const std::string& locked) : path_(std::move(path)), content_(own_content()) {
  LockWait wait;
  acquire(path_, locked, wait);
}

void FolderLock::acquire(const std::string& path, const std::string& locked, LockWait& wait) {
  for (int attempt = 0; !try_link(path); ++attempt) {
    if (attempt == 100) {
      TRIREME_CHECK(!is_there(path) || !content_of(path).empty(), EnvironmentError,
                    "{} is empty, perhaps since a node lost its power: if no job uses {}, delete it", path, locked);
      throw IoError("cannot lock {}: other jobs take and release it again and again", path_);
    }
    const std::string theirs = content_of(path);
    if (theirs == content_) return;  // a network file system made the link, but lost the reply
    if (theirs.empty()) continue;    // released meanwhile
    const Fields owner = fields_of(theirs);
    std::string death;
    while (content_of(path) == theirs && (death = proof_of_death(owner, fields_of(content_))).empty()) {
      TRIREME_CHECK(
          wait.pause(locked, description(owner)), EnvironmentError,
          "{} is in use by another job, {}. Choose another name, or wait; if that job has certainly ended, delete {}",
          locked, description(owner), path);
    }
    if (death.empty()) continue;  // released meanwhile
    // Several jobs may find the owner dead. A lock named after the dead one decides which of them succeeds it, and
    // replaces it atomically: a gap without a lock would admit a second owner. It is obsolete once the dead lock is
    // gone.
    const std::string successor = fmt::format("{}-{:016x}", path, fnv1a(theirs));
    acquire(successor, locked, wait);
    if (content_of(path) == theirs) {
      log::warn("{}: the lock of {} is taken over: {}", path_, description(owner), death);
      TRIREME_CHECK(std::rename(successor.c_str(), path.c_str()) == 0 || content_of(path) == content_, IoError,
                    "cannot take over the lock {}: {}", path_, std::strerror(errno));
      return;
    }
    unlink(successor.c_str());
  }
}

bool FolderLock::try_link(const std::string& path) {
  const std::string temporary = path + "-" + unique_suffix();
  try {
    write_and_sync(temporary, content_);
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
  const bool linked = link(temporary.c_str(), path.c_str()) == 0;
  const int error = errno;
  unlink(temporary.c_str());
  // ENOENT: the owner's cleanup removed the temporary file.
  TRIREME_CHECK(linked || error == EEXIST || error == ENOENT, IoError, "cannot lock {} by a hard link: {}", path_,
                std::strerror(error));
  return linked;
}

FolderLock::~FolderLock() {
  try {
    if (content_of(path_) == content_ && fields_of(content_)["pid"] == std::to_string(getpid())) unlink(path_.c_str());
  } catch (const Error& error) {
    log::warn("releasing the lock {} failed: {}", path_, error.what());
  }
}

}  // namespace trireme::io
