#include "io/metrics/trace_file.hpp"

#include <cerrno>
#include <cstring>

#include "io/json/trace_json.hpp"
#include "src/base/check.hpp"

namespace trireme::io {
TraceFile::TraceFile(std::string path, Communicator& world) : path_(std::move(path)), world_(world) {
  collectively(world_, [&] {
    if (world_.rank() != 0) return;
    file_.open(path_, std::ios::binary | std::ios::trunc);
    TRIREME_CHECK(file_.is_open(), IoError, "creating <trace_file> {} failed: {}", path_, std::strerror(errno));
  });
}

void TraceFile::write(const TraceRecorder& recorder, const std::string& process) {
  ImmediateStream host;
  std::string text = trace_events(recorder.spans(), process, world_.rank());
  std::int64_t size = static_cast<std::int64_t>(text.size());
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(world_.size()));
  world_.all_gather(host, TensorView(&size, {1}), TensorView(sizes.data(), {world_.size()})).wait(host);
  const auto move = [&](Transfer::Direction direction, int peer) {
    const Transfer transfer{
        direction, peer,
        TensorView(reinterpret_cast<std::uint8_t*>(text.data()), {static_cast<std::int64_t>(text.size())})};
    for (Work& work : world_.exchange(host, std::span(&transfer, 1))) work.wait(host);
  };
  if (world_.rank() == 0) {
    file_ << trace_begin << text;
    for (int rank = 1; rank < world_.size(); ++rank) {
      text.resize(static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]));
      move(Transfer::Direction::receive, rank);
      file_ << ",\n" << text;
    }
    file_ << trace_end;
    file_.close();
  } else {
    move(Transfer::Direction::send, 0);
  }
  collectively(world_, [&] {
    TRIREME_CHECK(!file_.fail(), IoError, "writing <trace_file> {} failed: {}", path_, std::strerror(errno));
  });
}

}  // namespace trireme::io
