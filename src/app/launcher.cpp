// The executable: blocks the signals that ask for a stop, and only then loads the program, which is a library.
//
// Loading took 5 ms on an idle machine and more than 12 ms on a busy one, and libraries start threads while loading. A
// signal would end the process in that time; blocked in every thread, it stays pending until the program takes it. This
// file needs only the C library and no search path: its main started 1 to 2 ms after exec there.
#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "src/base/signals.hpp"

namespace {

/// Writes the folder of this executable, links resolved, into `folder`; an empty text without /proc. The dynamic
/// linker's $ORIGIN is the folder of the library that calls dlopen, and under AddressSanitizer that is the sanitizer's.
void find_own_folder(char (&folder)[PATH_MAX]) {
  const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
  folder[length > 0 ? length : 0] = '\0';
  if (char* const slash = std::strrchr(folder, '/')) *slash = '\0';
}

}  // namespace

int main(int argc, char** argv) {
  const sigset_t signals = trireme::stop_signals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
#ifdef TRIREME_X86_LEVEL
  if (!__builtin_cpu_supports(TRIREME_X86_LEVEL)) {
    std::fprintf(stderr,
                 "trireme: this build needs a processor of level %s, and this one is older. Build the program with "
                 "-D TRIREME_MARCH=x86-64, or run it on a newer processor.\n",
                 TRIREME_X86_LEVEL);
    return 4;  // ExitCode::environment
  }
#endif
  // The program's threads call OpenBLAS themselves. Its own would reserve 128 MiB of addresses each at loading, and
  // retry indefinitely if `ulimit -v` is too low.
  setenv("OPENBLAS_NUM_THREADS", "1", 1);

  // Beside the executable in a build, in the folder of libraries in an installation.
  char folder[PATH_MAX];
  find_own_folder(folder);
  char problems[2][1024] = {"", ""};
  void* program = nullptr;
  int tried = 0;
  for (const char* below : {"", "/../" TRIREME_LIBDIR}) {
    char path[2 * PATH_MAX];
    std::snprintf(path, sizeof path, "%s%s/libtrireme_program.so", folder, below);
    program = dlopen(path, RTLD_LAZY | RTLD_GLOBAL);  // global: plug-ins of MPI look for its symbols
    if (program != nullptr) break;
    std::snprintf(problems[tried++], sizeof problems[0], "%s", dlerror());
  }
  void* const entry = program == nullptr ? nullptr : dlsym(program, "trireme_main");
  if (entry == nullptr) {
    std::fprintf(stderr,
                 "trireme: the program's library cannot be loaded (%s; %s). It must be in the folder of the executable "
                 "or in ../%s; the README names the libraries that it needs.\n",
                 problems[0], problems[1], TRIREME_LIBDIR);
    return 4;  // ExitCode::environment
  }
  return reinterpret_cast<int (*)(int, char**)>(entry)(argc, argv);
}
