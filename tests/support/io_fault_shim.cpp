// Library for LD_PRELOAD. Counts the calls that change files under a folder, or those that read them. At a given call
// it makes one or several calls fail, or kills the process. The environment sets it:
//
//   TRIREME_FAULT_FOLDER   Only files whose paths begin with this count.
//   TRIREME_FAULT_READS    If set: counts calls that look for, open, list and read files, not those that change them.
//   TRIREME_FAULT_AT       Number of the call, from 1. 0 for none: then the count is printed at the end.
//   TRIREME_FAULT_TIMES    Number of calls that fail, from that one on (default 1).
//   TRIREME_FAULT          An error number, "kill" (before the call), or "short" (half of a write is done).
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

/// Counts a call and returns its fate.
Fate count(Kind kind = Kind::change) {
  if ((kind == Kind::read) != (*setting("TRIREME_FAULT_READS") != '\0')) return Fate::pass;
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

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

int opened(const char* path, int flags, int descriptor) {
  if (descriptor >= 0 && descriptor < max_descriptor) {
    watched[descriptor] = concerns(path);
    written[descriptor] = concerns(path) && (flags & O_ACCMODE) != O_RDONLY;
  }
  return descriptor;
}

template <class Half, class Whole>
ssize_t write_call(int descriptor, size_t size, const Half& write_half, const Whole& write_whole) {
  if (!concerns(descriptor)) return write_whole();
  const Fate fate = count();
  if (fate == Fate::fail) return -1;
  return fate == Fate::half && size > 1 ? write_half() : write_whole();
}

/// Returns whether a call on `location`, a path or a descriptor, fails.
template <class Location>
bool read_fails(Location location) {
  return concerns(location) && count(Kind::read) == Fate::fail;
}

bool open_fails(const char* path, int flags) {
  return concerns(path) && count((flags & O_CREAT) != 0 ? Kind::change : Kind::read) == Fate::fail;
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
  if (open_fails(path, flags)) return -1;
  return opened(path, flags, next<int (*)(const char*, int, ...)>("open")(path, flags, mode));
}
int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (open_fails(path, flags)) return -1;
  return opened(path, flags, next<int (*)(const char*, int, ...)>("open64")(path, flags, mode));
}

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
ssize_t pwrite64(int descriptor, const void* data, size_t size, off64_t offset) {
  return pwrite(descriptor, data, size, offset);
}

ssize_t read(int descriptor, void* data, size_t size) {
  if (read_fails(descriptor)) return -1;
  return next<ssize_t (*)(int, void*, size_t)>("read")(descriptor, data, size);
}
ssize_t pread(int descriptor, void* data, size_t size, off_t offset) {
  if (read_fails(descriptor)) return -1;
  return next<ssize_t (*)(int, void*, size_t, off_t)>("pread")(descriptor, data, size, offset);
}
ssize_t pread64(int descriptor, void* data, size_t size, off64_t offset) {
  return pread(descriptor, data, size, offset);
}
int stat(const char* path, struct stat* status) {
  if (read_fails(path)) return -1;
  return next<int (*)(const char*, struct stat*)>("stat")(path, status);
}
int lstat(const char* path, struct stat* status) {
  if (read_fails(path)) return -1;
  return next<int (*)(const char*, struct stat*)>("lstat")(path, status);
}
int access(const char* path, int mode) {
  if (read_fails(path)) return -1;
  return next<int (*)(const char*, int)>("access")(path, mode);
}
char* realpath(const char* path, char* resolved) {
  if (read_fails(path)) return nullptr;
  return next<char* (*)(const char*, char*)>("realpath")(path, resolved);
}
DIR* opendir(const char* path) {
  if (read_fails(path)) return nullptr;
  return next<DIR* (*)(const char*)>("opendir")(path);
}

int fsync(int descriptor) {
  if (concerns(descriptor) && count() == Fate::fail) return -1;
  return next<int (*)(int)>("fsync")(descriptor);
}
int ftruncate(int descriptor, off_t size) {
  if (concerns(descriptor) && count() == Fate::fail) return -1;
  return next<int (*)(int, off_t)>("ftruncate")(descriptor, size);
}
int ftruncate64(int descriptor, off64_t size) { return ftruncate(descriptor, size); }

int close(int descriptor) {
  const bool fails = concerns(descriptor) && written[descriptor] && count() == Fate::fail;
  if (concerns(descriptor)) watched[descriptor] = false;
  const int error = errno;
  const int result = next<int (*)(int)>("close")(descriptor);  // a failed close closes, too
  if (!fails) return result;
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) {
  if (concerns(from) && count() == Fate::fail) return -1;
  return next<int (*)(const char*, const char*)>("rename")(from, to);
}
int link(const char* from, const char* to) {
  if (concerns(from) && count() == Fate::fail) return -1;
  return next<int (*)(const char*, const char*)>("link")(from, to);
}
int unlink(const char* path) {
  if (concerns(path) && count() == Fate::fail) return -1;
  return next<int (*)(const char*)>("unlink")(path);
}
int rmdir(const char* path) {
  if (concerns(path) && count() == Fate::fail) return -1;
  return next<int (*)(const char*)>("rmdir")(path);
}
int mkdir(const char* path, mode_t mode) {
  if (concerns(path) && count() == Fate::fail) return -1;
  return next<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}
}
