// Saves one version of a small model after another, for checkpoint_faults_test, which kills it or lets its calls fail.
// usage: checkpoint_driver ROOT SAVES     goes on from what is in ROOT; exit code 5 after the first save that fails
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "io/checkpoint_store.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/io/checkpoint_versions.hpp"

int main(int argc, char** argv) {
  using namespace trireme;
  if (argc != 3) return 2;
  try {
    SelfCommunicator world;
    io::CheckpointStore store(argv[1]);
    std::uint64_t version = checkpoint::has_checkpoint(store, world) ? test::load_version(store, world) : 0;
    dprintf(STDOUT_FILENO, "ready %lu\n", version);
    for (int i = 0; i < std::atoi(argv[2]); ++i) {
      ++version;
      test::save_version(store, world, test::step_of(version), version, 2);
      dprintf(STDOUT_FILENO, "saved %lu\n", version);
    }
    return 0;
  } catch (const Error& error) {
    dprintf(STDOUT_FILENO, "failed %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
