#include "src/app/job/flight_recorder.hpp"

#include <fcntl.h>

#include <algorithm>
#include <numeric>

#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/parallel/grid/decorated_groups.hpp"
#include "src/report/flight.hpp"

namespace trireme::app {
namespace {

constexpr std::string_view prefix = "rank-";

std::vector<std::string> records_in(const std::string& folder) {
  std::vector<std::string> names = io::names_in(folder);
  std::erase_if(names, [](const std::string& name) { return !name.starts_with(prefix); });
  return names;
}

}  // namespace

FlightRecorder::FlightRecorder(Job& job, const std::string& folder) : job_(job) {
  Communicator& world = *job.world;
  const std::string start = broadcast_text(world, utc_text("%Y%m%dT%H%M%S"), 0);
  const std::string own = folder + "/" + start;
  const std::string path = fmt::format("{}/{}{:05}.txt", own, prefix, world.rank());
  collectively(world, [&] {
    if (job.is_root()) io::make_folders(own);
  });
  collectively(world, [&] {
    const auto file =
        std::make_shared<io::Descriptor>(::open(path.c_str(), O_CREAT | O_WRONLY | O_EXCL | O_CLOEXEC, 0666));
    if (file->get() < 0) io::throw_system_error("cannot create " + path, errno);
    record_.emplace([file, path](std::string_view line,
                                 std::int64_t at) { io::write_at(file->get(), path, line.data(), line.size(), at); },
                    world.rank(), world.size());
  });
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  const Stream& compute = job.backend->compute_stream();
  world_ = recorded(world, all, compute, *record_);
  parallel::decorate(job.communicators, [&](parallel::GroupKind kind, std::unique_ptr<Communicator> group) {
    return recorded(std::move(group), job.grid.group(kind, world.rank()), compute, *record_);
  });
  log::info("records of communication: {}; if the job hangs: trireme report --flight {}", own, own);
}

FlightRecorder::~FlightRecorder() { parallel::undecorate(job_.communicators); }

std::string read_flights(const std::string& folder) {
  io::check_there(folder);
  std::string own = folder;
  if (records_in(own).empty()) {
    for (const std::string& name : io::names_in(folder)) {
      const std::string inner = folder + "/" + name;
      if (io::is_folder(inner) && !records_in(inner).empty()) own = inner;
    }
  }
  std::vector<report::Flight> flights;
  for (const std::string& name : records_in(own)) {
    constexpr std::int64_t max_bytes = 1 << 20;
    const std::string path = own + "/" + name;
    flights.push_back(report::parse_flight(io::read_whole_file(path, max_bytes), path));
  }
  TRIREME_CHECK(!flights.empty(), DataError, "{} has no record of communication, {}00000.txt", folder, prefix);
  return fmt::format("{}: {} since {}\n", own, counted(std::ssize(flights), "record"), flights.front().since) +
         report::flight_findings(flights);
}

}  // namespace trireme::app
