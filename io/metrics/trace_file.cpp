#include "io/metrics/trace_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "io/json/trace_json.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"
#include "src/comm/host_collectives.hpp"

namespace trireme::io {

TraceFile::TraceFile(std::string path, Communicator& world, TraceRecorder& recorder)
    : path_(std::move(path)), world_(world), recorder_(recorder) {
  collectively(world_, [&] {
    if (world_.rank() == 0) check_writable(path_);
  });
  begin_ = read_clock();
}

TraceFile::Reading TraceFile::read_clock() const {
  const ClockOffset offset = measure_clock_offset(world_, [this] { return recorder_.now_us(); });
  return {offset, recorder_.now_us()};
}

double TraceFile::write(const std::string& process) {
  recorder_.resolve();
  const Reading end = read_clock();
  const double change_us = end.offset.us - begin_.offset.us;
  const double reading_error_us = begin_.offset.error_us + end.offset.error_us;
  // Ignores a change within the errors of both readings: divided by the duration of a short recording it would be
  // large.
  const double drift =
      std::abs(change_us) <= reading_error_us ? 0 : change_us / std::max(1.0, end.at_us - begin_.at_us);
  std::vector<TraceSpan> spans = recorder_.spans();
  for (TraceSpan& span : spans) {
    for (double* time_us : {&span.start_us, &span.end_us}) {
      *time_us += begin_.offset.us + drift * (*time_us - begin_.at_us);
    }
  }
  const double error_us = all_reduce_number(world_, reading_error_us + recorder_.error_us(), ReduceOp::max);

  ImmediateStream host;
  std::string text = trace_events(spans, process, world_.rank());
  const std::vector<std::int64_t> sizes = all_gather_number(world_, std::ssize(text));
  const auto move = [&](Transfer::Direction direction, int peer) {
    const Transfer transfer{
        direction, peer,
        TensorView(reinterpret_cast<std::uint8_t*>(text.data()), {static_cast<std::int64_t>(text.size())})};
    for (Work& work : world_.exchange(host, std::span(&transfer, 1))) work.wait(host);
  };
  std::string failure;  // error of rank 0, which still receives the spans of the other ranks
  const auto attempt = [&](const auto& action) {
    try {
      if (failure.empty()) action();
    } catch (const Error& error) {
      failure = error.what();
    }
  };
  if (world_.rank() == 0) {
    std::optional<TemporaryFile> file;
    std::optional<FileOutput> output;
    const auto put = [&](std::string_view bytes) {
      attempt([&] { output->write_bytes(std::as_bytes(std::span(bytes))); });
    };
    attempt([&] { output.emplace(file.emplace(path_).path()); });
    put(trace_begin);
    put(text);
    for (int rank = 1; rank < world_.size(); ++rank) {
      text.resize(static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]));
      move(Transfer::Direction::receive, rank);
      put(",\n");
      put(text);
    }
    put(fmt::format("\n], \"otherData\": {{\"clock_error_us\": {:.1f}}}}}\n", error_us));
    attempt([&] {
      output->close();
      file->commit();
    });
  } else {
    move(Transfer::Direction::send, 0);
  }
  collectively(world_,
               [&] { TRIREME_CHECK(failure.empty(), IoError, "writing <trace_file> {} failed: {}", path_, failure); });
  return error_us;
}

}  // namespace trireme::io
