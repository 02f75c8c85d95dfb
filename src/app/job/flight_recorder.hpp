#pragma once

#include <memory>
#include <optional>
#include <string>

#include "src/app/job/job.hpp"
#include "src/comm/flight_record.hpp"

namespace trireme::app {

/// Records the last communications of every rank of a job in FOLDER/START/rank-00003.txt. START is the time of the
/// start: the records of a job that hung stay when it is started again.
class FlightRecorder {
 public:
  /// Replaces the communicators of `job`'s groups by recorded ones, until this object ends. Collective. IoError if a
  /// file cannot be made.
  FlightRecorder(Job& job, const std::string& folder);
  ~FlightRecorder();
  FlightRecorder& operator=(FlightRecorder&&) = delete;

  /// The job's world, recorded.
  Communicator& world() { return *world_; }
  FlightRecord& record() { return *record_; }

 private:
  Job& job_;
  std::optional<FlightRecord> record_;
  std::unique_ptr<Communicator> world_;
};

/// Returns the findings on the records in a folder of --flight-record, or in one of its folders: of the newest start.
/// IoError or DataError if there are none.
std::string read_flights(const std::string& folder);

}  // namespace trireme::app
