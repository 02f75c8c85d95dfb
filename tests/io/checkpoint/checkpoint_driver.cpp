// Saves one version of a small model after another, for checkpoint_faults_test, which kills it or lets its calls fail.
// usage: checkpoint_driver ROOT SAVES [again] Resumes from the state in ROOT. Exits with code 5 after the first save
// that fails; with `again` repeats each such save once.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "io/checkpoint/checkpoint_store.hpp"
#include "src/base/log.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/support/checkpoint_model.hpp"

/// One line, in one piece whenever this process is killed.
static void print(const std::string& line) {
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) std::abort();
}

int main(int argc, char** argv) {
  using namespace trireme;
  if (argc < 3) return 2;
  log::initialise(0, 1);  // to stderr
  try {
    SelfCommunicator world;
    io::CheckpointStore store(argv[1]);
    std::uint64_t version = checkpoint::has_checkpoint(store, world) ? test::load_version(store, world) : 0;
    print(fmt::format("ready {}\n", version));
    for (int i = 0; i < std::atoi(argv[2]); ++i) {
      ++version;
      const auto save = [&] { test::save_version(store, world, test::step_of(version), version, 2); };
      try {
        save();
      } catch (const Error&) {
        if (argc == 3) throw;
        save();
      }
      print(fmt::format("saved {}\n", version));
    }
    return 0;
  } catch (const Error& error) {
    print(fmt::format("failed {}\nexit {}\n", error.what(), static_cast<int>(error.exit_code())));
    return static_cast<int>(error.exit_code());
  }
}
