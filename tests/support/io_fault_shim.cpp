// Library for LD_PRELOAD. Counts the calls that change files under a folder, or those that read them. From a given call
// on it makes one or several calls fail, or kills the process. Its environment variables:
//
//   TRIREME_FAULT_FOLDER   Counts only files whose paths begin with this.
//   TRIREME_FAULT_READS    If set: counts calls that look for, open, list and read files, not those that change them.
//   TRIREME_FAULT_AT       Number of the call, from 1. 0: none fails, and the count is printed at the end.
//   TRIREME_FAULT_TIMES    Number of calls that fail, from that one on (default 1).
//   TRIREME_FAULT_WHILE    If set: counts calls only while this file exists.
//   TRIREME_FAULT          An error number, "kill" (before the call), or "short" (writes only half).
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace {

constexpr int max_descriptor = 1024;
bool watched[max_descriptor];
bool written[max_descriptor];
long calls = 0;

const char* setting(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

bool concerns(const char* path) {
  const char* folder = setting("TRIREME_FAULT_FOLDER");
  return *folder != '\0' && strncmp(path, folder, strlen(folder)) == 0;
}
bool concerns(int descriptor) { return descriptor >= 0 && descriptor < max_descriptor && watched[descriptor]; }

enum class Fate { pass, fail, half };

enum class Kind { change, read };

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

/// Counts a call and returns its fate.
Fate count(Kind kind = Kind::change) {
  if ((kind == Kind::read) != (*setting("TRIREME_FAULT_READS") != '\0')) return Fate::pass;
  const char* armed = setting("TRIREME_FAULT_WHILE");
  if (*armed != '\0' && next<int (*)(const char*, int)>("access")(armed, F_OK) != 0) return Fate::pass;
  const long at = atol(setting("TRIREME_FAULT_AT"));
  const char* times = setting("TRIREME_FAULT_TIMES");
  if (++calls < at || at == 0 || calls >= at + (*times == '\0' ? 1 : atol(times))) return Fate::pass;
  const char* fault = setting("TRIREME_FAULT");
  if (strcmp(fault, "kill") == 0) {
    kill(getpid(), SIGKILL);
    pause();
  }
  if (strcmp(fault, "short") == 0) return Fate::half;
  errno = atoi(fault);
  return Fate::fail;
}

/// Forwards a call on `location`, a path or a descriptor, unless it is to fail.
template <class Result, class Location, class... Arguments>
Result forward(Kind kind, const char* name, Location location, Arguments... arguments) {
  if (!concerns(location) || count(kind) != Fate::fail) {
    return next<Result (*)(Location, Arguments...)>(name)(location, arguments...);
  }
  if constexpr (std::is_pointer_v<Result>) {
    return nullptr;
  } else {
    return -1;
  }
}

template <class Half, class All>
ssize_t write_call(int descriptor, size_t size, const Half& write_half, const All& write_all) {
  if (!concerns(descriptor)) return write_all();
  const Fate fate = count();
  if (fate == Fate::fail) return -1;
  return fate == Fate::half && size > 1 ? write_half() : write_all();
}

struct Report {
  ~Report() {
    if (strcmp(setting("TRIREME_FAULT_AT"), "0") == 0) dprintf(1, "calls %ld\n", calls);
  }
} report;

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (concerns(path) && count((flags & O_CREAT) != 0 ? Kind::change : Kind::read) == Fate::fail) return -1;
  const int descriptor = next<int (*)(const char*, int, ...)>("open")(path, flags, mode);
  if (descriptor >= 0 && descriptor < max_descriptor) {
    watched[descriptor] = concerns(path);
    written[descriptor] = concerns(path) && (flags & O_ACCMODE) != O_RDONLY;
  }
  return descriptor;
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));

ssize_t write(int descriptor, const void* data, size_t size) {
  const auto original = next<ssize_t (*)(int, const void*, size_t)>("write");
  return write_call(
      descriptor, size, [&] { return original(descriptor, data, size / 2); },
      [&] { return original(descriptor, data, size); });
}
ssize_t pwrite(int descriptor, const void* data, size_t size, off_t offset) {
  const auto original = next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  return write_call(
      descriptor, size, [&] { return original(descriptor, data, size / 2, offset); },
      [&] { return original(descriptor, data, size, offset); });
}
ssize_t pwrite64(int descriptor, const void* data, size_t size, off64_t offset) __attribute__((alias("pwrite")));

ssize_t read(int descriptor, void* data, size_t size) {
  return forward<ssize_t>(Kind::read, "read", descriptor, data, size);
}
ssize_t pread(int descriptor, void* data, size_t size, off_t offset) {
  return forward<ssize_t>(Kind::read, "pread", descriptor, data, size, offset);
}
ssize_t pread64(int descriptor, void* data, size_t size, off64_t offset) __attribute__((alias("pread")));
int stat(const char* path, struct stat* status) { return forward<int>(Kind::read, "stat", path, status); }
int lstat(const char* path, struct stat* status) { return forward<int>(Kind::read, "lstat", path, status); }
int access(const char* path, int mode) { return forward<int>(Kind::read, "access", path, mode); }
char* realpath(const char* path, char* resolved) { return forward<char*>(Kind::read, "realpath", path, resolved); }
DIR* opendir(const char* path) { return forward<DIR*>(Kind::read, "opendir", path); }

int fsync(int descriptor) { return forward<int>(Kind::change, "fsync", descriptor); }
int ftruncate(int descriptor, off_t size) { return forward<int>(Kind::change, "ftruncate", descriptor, size); }
int ftruncate64(int descriptor, off64_t size) __attribute__((alias("ftruncate")));

int close(int descriptor) {
  const bool fails = concerns(descriptor) && written[descriptor] && count() == Fate::fail;
  if (concerns(descriptor)) watched[descriptor] = false;
  const int error = errno;
  const int result = next<int (*)(int)>("close")(descriptor);  // a failed close closes, too
  if (!fails) return result;
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) { return forward<int>(Kind::change, "rename", from, to); }
int link(const char* from, const char* to) { return forward<int>(Kind::change, "link", from, to); }
int unlink(const char* path) { return forward<int>(Kind::change, "unlink", path); }
int rmdir(const char* path) { return forward<int>(Kind::change, "rmdir", path); }
int mkdir(const char* path, mode_t mode) { return forward<int>(Kind::change, "mkdir", path, mode); }
}
