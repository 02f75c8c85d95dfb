// A program that ends in the way its argument names; endings.sh starts it under mpirun and checks the end of the job.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "mpi/run_main.hpp"
#include "src/comm/flight_record.hpp"
#include "src/report/flight.hpp"

namespace trireme {
namespace {

std::string record_of(const std::string& folder, int rank) { return folder + "/" + std::to_string(rank); }

/// Prints the findings on the records of a job of four ranks.
int print_findings(const std::string& folder) {
  std::vector<report::Flight> flights;
  for (int rank = 0; rank < 4; ++rank) {
    std::ifstream file(record_of(folder, rank));
    const std::string text(std::istreambuf_iterator<char>(file), {});
    flights.push_back(report::parse_flight(text, record_of(folder, rank)));
  }
  std::fputs(report::flight_findings(flights).c_str(), stdout);
  return 0;
}

int end(mpi::MpiEnvironment& environment, const std::string& how, const std::string& folder) {
  const auto plain_world = environment.make_world();
  ImmediateStream host;
  const int rank = plain_world->rank();
  std::ofstream file(folder.empty() ? "/dev/null" : record_of(folder, rank));
  FlightRecord record(
      [&file](std::string_view line, std::int64_t at) { file.seekp(at).write(line.data(), std::ssize(line)).flush(); },
      rank, plain_world->size());
  std::vector<int> ranks(static_cast<std::size_t>(plain_world->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto world = recorded(*plain_world, ranks, host, record);
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
  const std::unique_ptr<Communicator> saving = environment.make_world();
  std::future<void> save;
  if (how == "one_is_stopped_while_saving") {  // the thread that saves gives up first
    environment.engine()->set_max_wait(1);
    if (odd_one) raise(SIGSTOP);
    save = std::async(std::launch::async, [&] { saving->barrier(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  const bool hangs =
      how == "one_is_stopped" || how == "most_are_stopped" || how == "one_is_busy" || how == "one_goes_another_way";
  if (hangs || how == "one_differs") {
    environment.engine()->set_max_wait(1);
    if (odd_one ? how == "one_is_stopped" : how == "most_are_stopped") raise(SIGSTOP);
    for (volatile bool busy = odd_one && how == "one_is_busy"; busy;) continue;
    if (how == "one_differs") {
      std::vector<float> data(1000);
      world->all_reduce(host, TensorView(data.data(), {odd_one ? 900 : 1000}), ReduceOp::sum).wait(host);
    } else if (!odd_one) {
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
  const std::string folder = argc > 2 ? argv[2] : "";
  if (how == "findings") return trireme::print_findings(folder);
  const bool never_starts = how == "one_never_starts";
  if (never_starts && trireme::mpi::launched_rank() == 1) raise(SIGSTOP);
  return trireme::mpi::run_main(
      argc, argv, [&](trireme::mpi::MpiEnvironment& environment) { return trireme::end(environment, how, folder); },
      never_starts ? 0.02 : trireme::mpi::default_startup_timeout_minutes);
}
