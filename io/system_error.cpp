#include "io/system_error.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "src/base/error.hpp"

namespace trireme::io {
namespace {

/// The soft limit; RLIM_INFINITY where there is none.
rlim_t limit_of(decltype(RLIMIT_FSIZE) resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

}  // namespace

bool meets_limit(int error) { return error == EMFILE || (error == EFBIG && limit_of(RLIMIT_FSIZE) != RLIM_INFINITY); }

void throw_system_error(const std::string& what, int error) {
  if (!meets_limit(error)) throw IoError("{}: {}", what, std::strerror(error));
  throw EnvironmentError("{}: {}: {} of this process is {}; raise it", what, std::strerror(error),
                         error == EMFILE ? "ulimit -n" : "ulimit -f (in bytes)",
                         limit_of(error == EMFILE ? RLIMIT_NOFILE : RLIMIT_FSIZE));
}

}  // namespace trireme::io
