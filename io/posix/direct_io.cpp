#include "io/posix/direct_io.hpp"

#include <aio.h>
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "io/posix/system_call.hpp"

namespace trireme::io {

namespace {

/// Alignment of offsets, sizes and memory for direct I/O: at least a device's block size.
constexpr std::int64_t direct_alignment_bytes = 4096;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Allocates memory for direct I/O; `size_bytes` must be a multiple of the alignment. Throws std::bad_alloc.
AlignedMemory aligned_memory(std::int64_t size_bytes) {
  AlignedMemory memory(
      static_cast<std::byte*>(std::aligned_alloc(direct_alignment_bytes, static_cast<std::size_t>(size_bytes))));
  if (!memory) throw std::bad_alloc();
  return memory;
}

// BlockWriter
constexpr std::int64_t block_bytes = std::int64_t{8} << 20;
constexpr int block_count = 3;  // one being filled, one being written, one queued

// Prefetcher
constexpr std::int64_t request_bytes = std::int64_t{4} << 20;  // size of a request
constexpr std::int64_t large_bytes = std::int64_t{1} << 20;    // uses the memory of a full block
constexpr std::size_t max_requests = 512;
constexpr std::size_t max_idle = 16;

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

/// A range and its destination memory. Must not move while the kernel writes to it.
class Prefetcher::Request {
 public:
  ~Request() { end(); }

  void begin(const std::string& path, std::shared_ptr<const Descriptor> file, std::int64_t offset_bytes,
             std::int64_t size_bytes) {
    path_ = path;
    file_ = std::move(file);
    begin_ = offset_bytes;
    end_ = offset_bytes + size_bytes;
    first_ = begin_ / direct_alignment_bytes * direct_alignment_bytes;
    const std::int64_t size = round_up(end_ - first_, direct_alignment_bytes);
    if (size > capacity_) {
      capacity_ = size < large_bytes ? size : request_bytes + 2 * direct_alignment_bytes;
      memory_ = aligned_memory(capacity_);
    }
    *control_ = {};
    control_->aio_fildes = file_->get();
    control_->aio_buf = memory_.get();
    control_->aio_nbytes = static_cast<std::size_t>(size);
    control_->aio_offset = first_;
    control_->aio_sigevent.sigev_notify = SIGEV_NONE;
    got_ = -1;
    running_ = aio_read(control_.get()) == 0;
  }

  bool holds(const std::string& path, std::int64_t offset_bytes) const {
    return offset_bytes >= begin_ && offset_bytes < end_ && path == path_;
  }
  bool is_large() const { return capacity_ >= request_bytes; }
  std::int64_t end_offset() const { return end_; }

  /// Waits for the range, and copies the bytes available from that offset. Returns their number, 0 if they could not be
  /// read.
  std::size_t copy(std::int64_t offset_bytes, std::span<std::byte> out) {
    wait();
    if (got_ < end_ - first_) return 0;
    const std::size_t count = std::min(out.size(), static_cast<std::size_t>(end_ - offset_bytes));
    std::memcpy(out.data(), memory_.get() + (offset_bytes - first_), count);
    return count;
  }

  void end() {
    if (running_) aio_cancel(file_->get(), control_.get());
    wait();
    file_.reset();
  }

 private:
  void wait() {
    if (!running_) return;
    const aiocb* const list[] = {control_.get()};
    while (aio_error(control_.get()) == EINPROGRESS) aio_suspend(list, 1, nullptr);
    got_ = aio_return(control_.get());
    running_ = false;
  }

  std::string path_;
  std::int64_t begin_ = 0, end_ = 0;
  std::int64_t first_ = 0;  // position in the file of the first byte in memory
  std::shared_ptr<const Descriptor> file_;
  AlignedMemory memory_;
  std::int64_t capacity_ = 0;
  bool running_ = false;
  ssize_t got_ = -1;                                            // bytes read; negative after an error
  std::unique_ptr<aiocb> control_ = std::make_unique<aiocb>();  // ends in a flexible array: cannot be a member itself
};

Prefetcher::Prefetcher() = default;
Prefetcher::~Prefetcher() = default;

/// Opens a file for direct I/O; null if unsupported. Large ranges get separate descriptors, since requests on one
/// descriptor are serialised; small ones share one, since descriptors are limited.
std::shared_ptr<const Descriptor> Prefetcher::open_file(const std::string& path, Symlinks symlinks, bool shared) {
  std::weak_ptr<const Descriptor>& known = shared_[path];
  if (shared && !known.expired()) return known.lock();
  const int flags = O_RDONLY | O_CLOEXEC | O_DIRECT | (symlinks == Symlinks::refuse ? O_NOFOLLOW : 0);
  auto file = std::make_shared<const Descriptor>(open(path.c_str(), flags));
  if (!*file) return nullptr;
  if (shared) known = file;
  return file;
}

void Prefetcher::begin(const std::string& path, std::int64_t offset_bytes, std::int64_t size_bytes, Symlinks symlinks) {
  while (size_bytes > 0) {
    const std::int64_t size = std::min(size_bytes, request_bytes);
    const std::shared_ptr<const Descriptor> file = open_file(path, symlinks, size < large_bytes);
    if (!file) return;
    if (requests_.size() == max_requests) keep(requests_.begin());  // the oldest was never taken
    if (size >= large_bytes && !idle_.empty()) {
      requests_.push_back(std::move(idle_.back()));
      idle_.pop_back();
    } else {
      requests_.push_back(std::make_unique<Request>());
    }
    requests_.back()->begin(path, file, offset_bytes, size);
    offset_bytes += size;
    size_bytes -= size;
  }
}

/// Ends a request. Keeps the memory of large ones: allocating costs as much time as reading.
void Prefetcher::keep(Requests::iterator request) {
  (*request)->end();
  if ((*request)->is_large() && idle_.size() < max_idle) idle_.push_back(std::move(*request));
  requests_.erase(request);
}

bool Prefetcher::take(const std::string& path, std::int64_t offset_bytes, std::span<std::byte> out) {
  while (!out.empty()) {
    const auto found =
        std::ranges::find_if(requests_, [&](const auto& request) { return request->holds(path, offset_bytes); });
    if (found == requests_.end()) return false;
    const std::size_t count = (*found)->copy(offset_bytes, out);
    out = out.subspan(count);
    offset_bytes += static_cast<std::int64_t>(count);
    if (count == 0 || offset_bytes == (*found)->end_offset()) keep(found);
    if (count == 0) return false;
  }
  return true;
}

}  // namespace trireme::io
