#include "io/ordered_output.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <numeric>

#include "io/file_access.hpp"
#include "io/folder.hpp"
#include "src/base/check.hpp"
#include "src/comm/all_to_all.hpp"

namespace trireme::io {
namespace {
constexpr std::size_t buffer_bytes = std::size_t{1} << 20;
}

OrderedOutput::OrderedOutput(Communicator& comm, const std::string& target) : comm_(comm), target_(target) {
  collectively(comm, [&] {
    if (comm.rank() == 0) path_ = file_.emplace(target).path();
  });
  path_ = broadcast_text(comm, path_, 0);
  collectively(comm, [&] {
    descriptor_ = Descriptor(open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    TRIREME_CHECK(descriptor_, IoError, "cannot write {}: {}; all ranks must see its folder", path_,
                  std::strerror(errno));
    if (comm.rank() != 0) part_.emplace(path_ + "-" + unique_suffix());
  });
}

void OrderedOutput::append(std::string_view bytes) {
  buffer_ += bytes;
  if (buffer_.size() >= buffer_bytes) flush();
}

void OrderedOutput::flush() {
  if (part_) {
    part_->append(buffer_.data(), buffer_.size());
  } else {
    write_at(descriptor_.get(), path_, buffer_.data(), buffer_.size(), written_bytes_);
  }
  written_bytes_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void OrderedOutput::commit() {
  collectively(comm_, [&] { flush(); });
  const std::vector<std::int64_t> sizes = all_gather_number(comm_, written_bytes_);
  collectively(comm_, [&] {
    std::int64_t to = std::accumulate(sizes.begin(), sizes.begin() + comm_.rank(), std::int64_t{0});
    std::string bytes;
    for (std::int64_t from = 0; part_ && from < written_bytes_; from += static_cast<std::int64_t>(bytes.size())) {
      bytes.resize(static_cast<std::size_t>(std::min<std::int64_t>(written_bytes_ - from, buffer_bytes)));
      part_->read(from, bytes.data(), bytes.size());
      write_at(descriptor_.get(), path_, bytes.data(), bytes.size(), to + from);
    }
    TRIREME_CHECK(fsync(descriptor_.get()) == 0, IoError, "cannot bring {} to the disk: {}", path_,
                  std::strerror(errno));
  });
  collectively(comm_, [&] {
    if (file_) file_->commit();
  });
}

}  // namespace trireme::io
