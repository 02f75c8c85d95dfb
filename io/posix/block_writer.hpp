#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "io/posix/aligned_memory.hpp"
#include "io/posix/file.hpp"

namespace trireme::io {

/// Writes to an existing file from a separate thread while the caller produces the next bytes. Consecutive bytes bypass
/// the page cache in blocks (O_DIRECT) if the file system permits.
class BlockWriter {
 public:
  /// IoError or EnvironmentError if the file cannot be opened for writing.
  explicit BlockWriter(std::string path);
  /// Without `finish` the file's content is undefined.
  ~BlockWriter();
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  /// Writes bytes at this offset. Rethrows errors of earlier writes: IoError, EnvironmentError.
  void write(std::int64_t offset_bytes, std::span<const std::byte> bytes);
  /// Waits for all writes. The file then has all bytes, though possibly not on disk yet. Throws as `write`.
  void finish();

 private:
  /// Bytes [begin, end) of the file, in memory that starts at the preceding multiple of the alignment.
  struct Block {
    AlignedMemory memory;
    std::int64_t base = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::byte* at(std::int64_t offset_bytes) const { return memory.get() + (offset_bytes - base); }
  };
  void hand_over();
  void run();
  void write_block(const Block& block);
  void write_direct(const Block& block, std::int64_t& begin, std::int64_t end);
  void write_plain(const Block& block, std::int64_t begin, std::int64_t end);

  std::string path_;
  Descriptor direct_;  // null if the file system lacks direct I/O
  Descriptor plain_;
  Block filling_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Block> full_, empty_;
  std::size_t in_flight_ = 0;  // blocks handed over and not yet written
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace trireme::io
