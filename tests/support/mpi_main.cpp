// main of the tests that run on MPI ranks. Every rank runs every test; rank 0 prints as usual, the others print their
// failures, with their rank. All ranks exit with an error if one of them failed. ctest's time limit ends a deadlock.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

#include "mpi/run_main.hpp"
#include "tests/support/mpi_world.hpp"

namespace trireme::test {
namespace {

mpi::MpiEnvironment* the_environment = nullptr;
std::unique_ptr<mpi::MpiCommunicator> the_world;

/// Prints the failures of a rank other than 0.
class FailurePrinter final : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}

 private:
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  // Called while GoogleTest holds its lock: asking it for the current test would deadlock.
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "[rank %d] %s\n%s:%d: Failure\n%s\n", rank_, test_.c_str(),
                 result.file_name() ? result.file_name() : "?", result.line_number(), result.message());
  }
  std::string test_ = "outside of tests";
  int rank_;
};

int run_tests(mpi::MpiEnvironment& environment) {
  the_environment = &environment;
  the_world = environment.make_world();
  if (environment.rank() != 0) {
    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(environment.rank()));
  }
  std::int32_t failed = RUN_ALL_TESTS();
  if (environment.engine()->abandoned()) environment.abort(ExitCode::rank_died);
  ImmediateStream host;
  the_world->all_reduce(host, TensorView(&failed, {1}), ReduceOp::max).wait(host);
  the_world.reset();
  return failed;
}

}  // namespace

mpi::MpiEnvironment& mpi_environment() { return *the_environment; }
mpi::MpiCommunicator& world() { return *the_world; }

}  // namespace trireme::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return trireme::mpi::run_main(argc, argv, trireme::test::run_tests);
}
