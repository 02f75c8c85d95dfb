#pragma once

#include <sys/resource.h>

#include <csignal>

namespace trireme::test {

/// Limit on the size of files that this process writes, to the end of a scope. Ignores the signal at the limit.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t size_bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{size_bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace trireme::test
