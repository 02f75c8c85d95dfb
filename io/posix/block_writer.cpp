#include "io/posix/block_writer.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"

namespace trireme::io {
namespace {

constexpr std::int64_t block_bytes = std::int64_t{8} << 20;
constexpr int block_count = 3;  // one being filled, one being written, one queued

}  // namespace

BlockWriter::BlockWriter(std::string path) : path_(std::move(path)) {
  plain_.reset(retried([&] { return open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW); }));
  if (!plain_) throw_system_error("cannot write " + path_, errno);
  direct_.reset(open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECT));
  filling_.memory = aligned_memory(block_bytes);
  for (int i = 1; i < block_count; ++i) empty_.push_back({.memory = aligned_memory(block_bytes)});
  thread_ = std::thread([this] { run(); });
}

BlockWriter::~BlockWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    full_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void BlockWriter::write(std::int64_t offset_bytes, std::span<const std::byte> bytes) {
  if (offset_bytes != filling_.end && filling_.end > filling_.begin) hand_over();
  while (!bytes.empty()) {
    if (filling_.end == filling_.begin) {
      filling_.base = offset_bytes / direct_alignment_bytes * direct_alignment_bytes;
      filling_.begin = filling_.end = offset_bytes;
    }
    const auto count = std::min(bytes.size(), static_cast<std::size_t>(filling_.base + block_bytes - filling_.end));
    std::memcpy(filling_.at(filling_.end), bytes.data(), count);
    filling_.end += static_cast<std::int64_t>(count);
    offset_bytes = filling_.end;
    bytes = bytes.subspan(count);
    if (filling_.end == filling_.base + block_bytes) hand_over();
  }
}

void BlockWriter::finish() {
  if (filling_.end > filling_.begin) hand_over();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return in_flight_ == 0 || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

/// Hands the block to the thread, and takes an empty one.
void BlockWriter::hand_over() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !empty_.empty() || failure_; });
    if (failure_) std::rethrow_exception(failure_);
    full_.push_back(std::move(filling_));
    ++in_flight_;
    filling_ = std::move(empty_.front());
    filling_.begin = filling_.end = 0;
    empty_.pop_front();
  }
  changed_.notify_all();
}

void BlockWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !full_.empty() || stopping_; });
    if (full_.empty()) return;
    Block block = std::move(full_.front());
    full_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      write_block(block);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    empty_.push_back(std::move(block));
    --in_flight_;
    failure_ = failure;
    changed_.notify_all();
    if (failure_) return;
  }
}

void BlockWriter::write_block(const Block& block) {
  std::int64_t begin = round_up(block.begin, direct_alignment_bytes);
  const std::int64_t end = block.end / direct_alignment_bytes * direct_alignment_bytes;
  if (begin >= end) return write_plain(block, block.begin, block.end);
  write_plain(block, block.begin, begin);
  write_direct(block, begin, end);
  write_plain(block, begin, block.end);
}

void BlockWriter::write_plain(const Block& block, std::int64_t begin, std::int64_t end) {
  write_at(plain_.get(), path_, block.at(begin), static_cast<std::size_t>(end - begin), begin);
}

/// Advances `begin` as far as direct I/O is possible.
void BlockWriter::write_direct(const Block& block, std::int64_t& begin, std::int64_t end) {
  while (direct_ && begin < end) {
    const ssize_t count = uninterrupted(
        [&] { return pwrite(direct_.get(), block.at(begin), static_cast<std::size_t>(end - begin), begin); });
    if (count > 0) {
      begin += count;
      continue;
    }
    if (count < 0 && errno != EINVAL) {
      throw_system_error(fmt::format("cannot write {} bytes at byte {} of {}", end - begin, begin, path_), errno);
    }
    direct_.reset();  // the device has larger blocks, or the rest of a short write is not aligned
  }
}

}  // namespace trireme::io
