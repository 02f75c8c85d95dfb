#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::report {

/// A communication that a rank has called, of its flight record (comm/flight_record.hpp).
struct FlightCall {
  std::int64_t number = 0, of_channel = 0;
  std::string time, group;
  int first_rank = 0, size = 0;
  std::string operation;
  int peer = -1;
  std::string type;
  std::int64_t elements = 0;
  std::string stream, function, line, place;
};

/// Flight record of one rank.
struct Flight {
  int rank = 0, world_size = 0;
  std::string host, process, since;
  std::vector<FlightCall> calls;  ///< in order
};

/// Reads a flight record; a line that was cut off by a crash of the machine is left out. DataError that begins with
/// `name` if it is none.
Flight parse_flight(std::string_view text, const std::string& name);

/// Compares the records of a job and returns lines of text: the ranks with the earliest last calls; for each group the
/// ranks that have made fewer calls than others, with the first call they lack; and the first calls of the same number
/// that differ. Ranks run ahead of one another, so that some are always one or a few calls behind.
std::string flight_findings(std::span<const Flight> flights);

}  // namespace trireme::report
