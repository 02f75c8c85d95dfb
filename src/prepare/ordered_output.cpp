#include "src/prepare/ordered_output.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <vector>

#include "io/compression/packing.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/file_access.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"
#include "src/comm/all_to_all.hpp"

namespace trireme::io {
namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 20;  // written, or compressed, at a time

/// The sum of the numbers of the ranks before this one.
std::int64_t sum_before(Communicator& comm, std::int64_t number) {
  const std::vector<std::int64_t> numbers = all_gather_number(comm, number);
  return std::accumulate(numbers.begin(), numbers.begin() + comm.rank(), std::int64_t{0});
}

}  // namespace

OrderedOutput::OrderedOutput(Communicator& comm, ThreadPool& pool, const std::string& target)
    : comm_(comm),
      pool_(pool),
      target_(target),
      compression_(compression_by_name(target)),
      folder_path_(target + ".partial"),
      path_(folder_path_ + "/whole") {
  collectively(comm, [&] {
    check_replaceable(target);
    if (comm.rank() != 0) return;
    folder_.emplace(folder_path_, target);
    descriptor_ = Descriptor(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    TRIREME_CHECK(descriptor_, IoError, "cannot write {}: {}", path_, std::strerror(errno));
    begin_ = 0;
  });
  collectively(comm, [&] {
    if (comm.rank() == 0) return;
    descriptor_ = Descriptor(open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    TRIREME_CHECK(descriptor_, IoError, "cannot write {}: {}; all ranks must see its folder", path_,
                  std::strerror(errno));
  });
}

void OrderedOutput::expect(std::int64_t size_bytes) { begin_ = sum_before(comm_, size_bytes); }

void OrderedOutput::append(std::string_view bytes) {
  buffer_ += bytes;
  const auto blocks = static_cast<std::size_t>(is_compressed() ? pool_.threads() : 1);
  if (buffer_.size() >= blocks * block_bytes) flush();
}

void OrderedOutput::flush() {
  if (is_compressed()) {
    std::vector<std::string> blocks((buffer_.size() + block_bytes - 1) / block_bytes);
    pool_.parallel_for(std::ssize(blocks), [&](std::int64_t i) {
      const auto block = static_cast<std::size_t>(i);
      blocks[block] = packed(std::string_view(buffer_).substr(block * block_bytes, block_bytes), compression_);
    });
    buffer_.clear();
    for (const std::string& block : blocks) buffer_ += block;
  }
  if (begin_) {
    write_at(descriptor_.get(), path_, buffer_.data(), buffer_.size(), *begin_ + written_bytes_);
  } else {
    if (!part_) part_.emplace(folder_path_ + "/part-" + unique_suffix());
    part_->append(buffer_.data(), buffer_.size());
  }
  written_bytes_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void OrderedOutput::commit() {
  collectively(comm_, [&] { flush(); });
  const std::int64_t begin = sum_before(comm_, written_bytes_);
  collectively(comm_, [&] {
    std::string bytes;
    for (std::int64_t done = 0; part_ && done < written_bytes_; done += std::ssize(bytes)) {
      bytes.resize(std::min(static_cast<std::size_t>(written_bytes_ - done), block_bytes));
      part_->read(done, bytes.data(), bytes.size());
      write_at(descriptor_.get(), path_, bytes.data(), bytes.size(), begin + done);
    }
    if (is_compressed() && comm_.rank() == comm_.size() - 1 && begin + written_bytes_ == 0) {
      const std::string nothing = packed("", compression_);  // an empty file is not one of its kind
      write_at(descriptor_.get(), path_, nothing.data(), nothing.size(), 0);
    }
    TRIREME_CHECK(fsync(descriptor_.get()) == 0, IoError, "cannot bring {} to the disk: {}", path_,
                  std::strerror(errno));
  });
  collectively(comm_, [&] {
    if (folder_) rename_durably(path_, target_);
  });
}

}  // namespace trireme::io
