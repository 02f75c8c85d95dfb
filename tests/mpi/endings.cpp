// A program that ends in the way its argument names; endings.sh starts it under mpirun and checks the end of the job.
#include <csignal>
#include <stdexcept>
#include <string>
#include <vector>

#include "mpi/run_main.hpp"
#include "src/comm/communicator.hpp"

namespace trireme {
namespace {

int end(mpi::MpiEnvironment& environment, const std::string& how) {
  const auto world = environment.make_world();
  ImmediateStream host;
  const bool odd_one = world->rank() == 1;
  if (how == "all_right") return 0;
  if (how == "stopped_early") return static_cast<int>(ExitCode::stopped_early);
  if (how == "all_throw") throw ConfigError("the heads do not divide");
  if (how == "collectively") {
    collectively(*world, [&] {
      if (odd_one) throw IoError("the disk is full");
    });
  }
  // From here on only rank 1 leaves, and the others wait for it.
  if (how == "one_throws" && odd_one) throw DataError("the corpus is torn");
  if (how == "one_throws_foreign" && odd_one) throw std::runtime_error("something else");
  if (how == "one_is_killed" && odd_one) raise(SIGKILL);
  if (how == "one_throws_while_communicating" && odd_one) {
    std::vector<float> data(1 << 20);
    const Work work = world->all_reduce(host, TensorView(data.data(), {1 << 20}), ReduceOp::sum);
    throw DataError("the corpus is torn");
  }
  if (how == "one_is_stopped" || how == "one_goes_another_way") {
    environment.engine()->set_max_wait(1);
    if (odd_one && how == "one_is_stopped") raise(SIGSTOP);
    if (!odd_one) {
      std::int32_t flag = 0;
      world->all_reduce(host, TensorView(&flag, {1}), ReduceOp::max).wait(host);
    }
  }
  world->barrier();
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  const bool never_starts = how == "one_never_starts";
  if (never_starts && trireme::mpi::launched_rank() == 1) raise(SIGSTOP);
  return trireme::mpi::run_main(
      argc, argv, [&](trireme::mpi::MpiEnvironment& environment) { return trireme::end(environment, how); },
      never_starts ? 0.02 : trireme::mpi::default_startup_timeout_minutes);
}
