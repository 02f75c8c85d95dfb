#include "src/report/flight.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::report {
namespace {

constexpr std::size_t max_listed = 8;

/// Calls of the same order on all of its ranks: collectives of a group, or messages from one rank to another.
struct Channel {
  std::string group;
  int first_rank = 0, size = 0;
  int from = -1, to = -1;  ///< world ranks of messages
  auto operator<=>(const Channel&) const = default;

  std::string text() const {
    const std::string ranks = fmt::format("group {} of {} from rank {} on", group, counted(size, "rank"), first_rank);
    return from < 0 ? ranks : fmt::format("messages from rank {} to rank {} in {}", from, to, ranks);
  }
};

Channel channel_of(const Flight& flight, const FlightCall& call) {
  Channel channel{call.group, call.first_rank, call.size};
  if (call.peer < 0) return channel;
  const bool sends = call.operation == "send";
  channel.from = sends ? flight.rank : call.peer;
  channel.to = sends ? call.peer : flight.rank;
  return channel;
}

struct RankCall {
  const Flight* flight;
  const FlightCall* call;
  std::string place() const {
    return (call->place == "-" ? "" : " in " + call->place) +
           (call->function == "-" ? "" : fmt::format(" by {} ({})", call->function, call->line));
  }
  /// Text that agrees on all ranks of a channel.
  std::string text() const {
    const std::string_view operation = call->peer < 0 ? std::string_view(call->operation) : "message";
    return call->elements == 0 ? std::string(operation)
                               : fmt::format("{} of {} {}", operation, call->elements, call->type);
  }
};

std::string ranks_text(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  std::string text = fmt::format(
      "{} {}", ranks.size() == 1 ? "rank" : "ranks",
      fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(std::min(ranks.size(), max_listed)), ", "));
  if (ranks.size() > max_listed) text += fmt::format(" and {} more", ranks.size() - max_listed);
  return text;
}

/// Text of ranks by their hosts: "ranks 0, 1 on host a, rank 8 on host b".
std::string ranks_on_hosts(const std::vector<const Flight*>& flights) {
  std::map<std::string, std::vector<int>> ranks_of;
  for (const Flight* flight : flights) ranks_of[flight->host].push_back(flight->rank);
  std::string text;
  std::size_t listed = 0;
  for (const auto& [host, ranks] : ranks_of) {
    if (listed == max_listed) break;
    text += fmt::format("{}{} on host {}", listed++ == 0 ? "" : ", ", ranks_text(ranks), host);
  }
  const auto rest = static_cast<std::int64_t>(ranks_of.size() - listed);
  return rest == 0 ? text : text + " and " + counted(rest, "more host");
}

using CallsByNumber = std::map<std::int64_t, std::vector<RankCall>>;

/// Appends the ranks whose last call is not the newest one. If `complete`, the records lack no call, and a rank without
/// calls has made none.
void find_missing(const Channel& channel, const CallsByNumber& calls, bool complete, std::string& lines) {
  std::map<const Flight*, std::int64_t> last;
  for (const auto& [number, of_number] : calls) {
    for (const RankCall& call : of_number) last[call.flight] = number;
  }
  const std::int64_t newest = calls.rbegin()->first;
  if (complete && std::ssize(last) < (channel.from < 0 ? channel.size : 2)) {
    std::vector<int> ranks;
    for (const auto& [flight, number] : last) ranks.push_back(flight->rank);
    const RankCall& first = calls.begin()->second.front();
    lines += fmt::format("  {}: only {} made calls, {}; first missing elsewhere: {}{}\n", channel.text(),
                         ranks_text(ranks), newest, first.text(), first.place());
  }
  std::map<std::int64_t, std::vector<const Flight*>> behind;
  for (const auto& [flight, number] : last) {
    if (number < newest) behind[number].push_back(flight);
  }
  for (const auto& [number, flights] : behind) {
    const RankCall& missing = calls.upper_bound(number)->second.front();
    lines += fmt::format("  {}: {} made {}, others {}; first missing there: {}{}\n", channel.text(),
                         ranks_on_hosts(flights), counted(number, "call"), newest, missing.text(), missing.place());
  }
}

/// Appends the first number whose calls differ.
void find_difference(const Channel& channel, const CallsByNumber& calls, std::string& lines) {
  for (const auto& [number, of_number] : calls) {
    std::map<std::string, std::vector<int>> ranks;
    std::map<std::string, std::string> places;
    for (const RankCall& call : of_number) {
      ranks[call.text()].push_back(call.flight->rank);
      places.emplace(call.text(), call.place());
    }
    if (ranks.size() == 1) continue;
    lines += fmt::format("  {}: call {} is not the same:", channel.text(), number);
    const char* separator = " ";
    for (const auto& [text, of_text] : ranks) {
      lines += fmt::format("{}{} on {}{}", std::exchange(separator, "; "), text, ranks_text(of_text), places.at(text));
    }
    lines += '\n';
    return;
  }
}

}  // namespace

Flight parse_flight(std::string_view text, const std::string& name) {
  const std::vector<std::string_view> lines = split(text, '\n');
  Flight flight;
  std::string rest, host, process;
  std::istringstream head{std::string(lines.empty() ? "" : lines.front())};
  const auto skip = [&](int words) {
    for (int i = 0; i < words; ++i) head >> rest;
  };
  skip(1);
  bool is_flight = rest == "flight";
  skip(2);
  is_flight = is_flight && rest == "4";
  skip(2);
  head >> flight.rank;
  skip(1);
  head >> flight.world_size;
  skip(2);
  head >> flight.host;
  skip(1);
  head >> flight.process;
  skip(1);
  head >> flight.since;
  TRIREME_CHECK(
      is_flight && head && flight.rank >= 0 && flight.rank < flight.world_size && flight.world_size <= (1 << 24),
      DataError, "{} is not a flight record: {}", name, shortened(lines.empty() ? "it is empty" : lines.front()));
  for (std::string* word : {&flight.host, &flight.process}) {
    if (word->ends_with(',')) word->pop_back();
  }
  for (std::size_t i = 1; i < lines.size(); ++i) {
    std::istringstream line{std::string(lines[i])};
    FlightCall call;
    std::string peer;
    line >> call.number >> call.of_channel >> call.time >> call.group >> call.first_rank >> call.size >>
        call.operation >> peer >> call.type >> call.elements >> call.stream >> call.function >> call.line >> std::ws;
    std::getline(line, call.place);
    if (!line) continue;
    call.place.erase(call.place.find_last_not_of(' ') + 1);
    if (peer != "-") std::istringstream(peer) >> call.peer;
    flight.calls.push_back(std::move(call));
  }
  std::ranges::sort(flight.calls, {}, &FlightCall::number);
  return flight;
}

std::string flight_findings(std::span<const Flight> flights) {
  std::vector<const Flight*> by_time;
  std::map<Channel, CallsByNumber> channels;
  for (const Flight& flight : flights) {
    by_time.push_back(&flight);
    for (const FlightCall& call : flight.calls) {
      channels[channel_of(flight, call)][call.of_channel].push_back({&flight, &call});
    }
  }
  const auto last_time = [](const Flight* flight) {
    return flight->calls.empty() ? flight->since : flight->calls.back().time;
  };
  std::ranges::stable_sort(by_time, {}, last_time);

  std::string lines = "last calls, the earliest first:\n";
  for (const Flight* flight : std::span(by_time).first(std::min(by_time.size(), max_listed))) {
    lines += fmt::format("  {} rank {} on host {}, process {}: ", last_time(flight), flight->rank, flight->host,
                         flight->process);
    if (flight->calls.empty()) {
      lines += "none\n";
      continue;
    }
    const FlightCall& call = flight->calls.back();
    const std::string peer = call.peer < 0              ? ""
                             : call.operation == "send" ? fmt::format(" to rank {}", call.peer)
                                                        : fmt::format(" from rank {}", call.peer);
    lines += fmt::format("{} of {} {}{} in group {}", call.operation, call.elements, call.type, peer, call.group);
    if (call.stream != "-") lines += fmt::format(", after the {} stream", call.stream);
    lines += RankCall{flight, &call}.place() + '\n';
  }
  if (by_time.size() > max_listed) lines += fmt::format("  and {} later ones\n", by_time.size() - max_listed);

  const bool complete = std::ranges::all_of(
      flights, [](const Flight& flight) { return flight.calls.empty() || flight.calls.front().number == 1; });
  std::string missing, different;
  for (const auto& [channel, calls] : channels) {
    find_missing(channel, calls, complete, missing);
    find_difference(channel, calls, different);
  }
  std::vector<bool> is_there(flights.empty() ? 0 : static_cast<std::size_t>(flights.front().world_size));
  for (const Flight& flight : flights) {
    if (static_cast<std::size_t>(flight.rank) < is_there.size()) is_there[static_cast<std::size_t>(flight.rank)] = true;
  }
  std::vector<int> absent;
  for (std::size_t i = 0; i < is_there.size(); ++i) {
    if (!is_there[i]) absent.push_back(static_cast<int>(i));
  }
  if (!absent.empty()) lines += fmt::format("no record of {}\n", ranks_text(absent));
  if (!different.empty()) lines += "calls that differ:\n" + different;
  if (!missing.empty()) lines += "ranks behind others:\n" + missing;
  if (different.empty() && missing.empty()) lines += "every rank has made the same calls as the others of its groups\n";
  return lines;
}

}  // namespace trireme::report
