#include "mpi/hang_report.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <thread>

#include "mpi/error.hpp"
#include "src/base/log.hpp"
#include "src/base/machine.hpp"
#include "src/base/timer.hpp"

namespace trireme::mpi {
namespace {

constexpr int tag = 1;

using Reports = std::map<int, std::string>;

/// Returns the ranks that collect reports, in order: several, far apart, so that the message depends on no rank or
/// node.
std::vector<int> collectors(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(std::min(size, 8)));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i] = static_cast<int>(i * static_cast<std::size_t>(size) / ranks.size());
  }
  return ranks;
}

/// Returns whether the ranks that report are the larger part of the job. Where a link is cut each side misses the
/// other one, and only one of them may judge: of two halves that of rank 0.
bool is_majority(const Reports& reports, std::size_t size) {
  return 2 * reports.size() > size || (2 * reports.size() == size && reports.contains(0));
}

void receive_reports(MPI_Comm comm, Reports& reports) {
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  while (MPI_Improbe(MPI_ANY_SOURCE, tag, comm, &found, &message, &status) == MPI_SUCCESS && found != 0) {
    int size = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &size), "MPI_Get_count");
    std::string text(static_cast<std::size_t>(size), '\0');
    check(MPI_Mrecv(text.data(), size, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
    reports[status.MPI_SOURCE] = std::move(text);
  }
}

std::string summary(const Reports& reports, const std::vector<std::string>& hosts) {
  std::string silent;
  std::vector<std::string> faulty;
  int silent_count = 0;
  constexpr int max_listed = 8;
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
    if (reports.contains(rank)) continue;
    const std::string& host = hosts[static_cast<std::size_t>(rank)];
    if (faulty.empty() || faulty.back() != host) faulty.push_back(host);
    if (++silent_count > max_listed) continue;
    silent += fmt::format("{}rank {} on host {}", silent.empty() ? "" : ", ", rank, host);
  }
  if (is_majority(reports, hosts.size())) report_faulty_nodes(faulty);
  if (silent_count > max_listed) silent += fmt::format(" and {} more", silent_count - max_listed);
  std::string text = "the job hangs: ";
  if (silent.empty()) {
    text += "every rank waits: not all have called the same operations, or a GPU has stopped";
  } else {
    text += silent + (silent_count == 1 ? " does" : " do") +
            " not answer: stopped, or stuck in something else than communication (a disk?). Look there, and start the "
            "job again from its last checkpoint";
  }
  std::map<std::string, std::vector<int>> waiting;
  for (const auto& [rank, report] : reports) waiting[report].push_back(rank);
  int listed = 0;
  for (const auto& [report, ranks] : waiting) {
    if (listed++ == max_listed) break;
    text += fmt::format("\n  {}: {}", ranks_text(ranks), report);
  }
  return text + "\n  If ranks may take longer, try a larger <distributed_timeout_minutes>";
}

}  // namespace

std::vector<std::string> all_hosts(MPI_Comm comm) {
  using Name = std::array<char, 64>;
  Name mine{};
  node_name().copy(mine.data(), mine.size() - 1);
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  std::vector<Name> all(static_cast<std::size_t>(size));
  check(MPI_Allgather(mine.data(), sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm), "MPI_Allgather");
  std::vector<std::string> hosts;
  for (const Name& name : all) hosts.emplace_back(name.data());
  return hosts;
}

void report_hang(MPI_Comm comm, const std::vector<std::string>& hosts, const std::string& mine, double patience_s) {
  using std::chrono::milliseconds;
  constexpr auto time_to_log = milliseconds(5000);
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  const int size = static_cast<int>(hosts.size());
  std::vector<MPI_Request> requests;
  const std::vector<int> targets = collectors(size);
  for (const int to : targets) {
    if (to == rank) continue;
    check(MPI_Isend(mine.data(), static_cast<int>(mine.size()), MPI_BYTE, to, tag, comm, &requests.emplace_back()),
          "MPI_Isend");
  }
  Reports reports = {{rank, mine}};
  for (Timer timer; timer.elapsed_s() < patience_s && static_cast<int>(reports.size()) < size;) {
    receive_reports(comm, reports);
    std::this_thread::sleep_for(milliseconds(1));
  }
  // Only collectors have the reports of others. Another collector ends the job, unless it stops right now.
  const auto first = std::ranges::find_if(targets, [&](int target) { return reports.contains(target); });
  const bool ends_job = first != targets.end() && *first == rank && is_majority(reports, hosts.size());
  if (!ends_job) std::this_thread::sleep_for(time_to_log);
  log::error("{}", summary(reports, hosts));
}

}  // namespace trireme::mpi
