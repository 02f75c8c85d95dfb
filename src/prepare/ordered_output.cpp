#include "src/prepare/ordered_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "src/comm/all_to_all.hpp"

namespace trireme::prepare {
namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 20;  // written, or compressed, at a time

/// Returns the sum of the numbers of the ranks before this one.
std::int64_t sum_before(Communicator& comm, std::int64_t number) {
  const std::vector<std::int64_t> numbers = all_gather_number(comm, number);
  return std::accumulate(numbers.begin(), numbers.begin() + comm.rank(), std::int64_t{0});
}

}  // namespace

OrderedOutput::OrderedOutput(const Files& files, Communicator& comm, ThreadPool& pool, const std::string& target)
    : work_(files.work),
      comm_(comm),
      pool_(pool),
      target_(target),
      compression_(compression_by_name(target)),
      folder_path_(target + ".partial"),
      path_(folder_path_ + "/whole") {
  collectively(comm, [&] {
    if (comm.rank() != 0) return;
    folder_ = work_->lock_folder(folder_path_, target, {});
    file_ = work_->open(path_, Access::create);
    begin_ = 0;
  });
  collectively(comm, [&] {
    if (comm.rank() != 0) file_ = work_->open(path_, Access::write);
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
      const auto bytes = std::string_view(buffer_).substr(block * block_bytes, block_bytes);
      blocks[block] = work_->compressed(bytes, compression_);
    });
    buffer_.clear();
    for (const std::string& block : blocks) buffer_ += block;
  }
  if (begin_) {
    file_->write(*begin_ + written_bytes_, buffer_);
  } else {
    if (!spool_) spool_ = work_->open(fmt::format("{}/spool-{}", folder_path_, comm_.rank()), Access::create_unnamed);
    spool_->write(written_bytes_, buffer_);
  }
  written_bytes_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void OrderedOutput::commit() {
  collectively(comm_, [&] { flush(); });
  const std::int64_t begin = sum_before(comm_, written_bytes_);
  collectively(comm_, [&] {
    std::string bytes;
    for (std::int64_t done = 0; spool_ && done < written_bytes_; done += std::ssize(bytes)) {
      bytes.resize(std::min(static_cast<std::size_t>(written_bytes_ - done), block_bytes));
      spool_->read(done, bytes);
      file_->write(begin + done, bytes);
    }
    if (is_compressed() && comm_.rank() == comm_.size() - 1 && begin + written_bytes_ == 0) {
      file_->write(0, work_->compressed("", compression_));  // an empty file is not compressed
    }
    file_->sync();
  });
  collectively(comm_, [&] {
    if (folder_) work_->commit(path_, target_);
  });
}

}  // namespace trireme::prepare
