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
#include "io/posix/file_handle.hpp"

namespace trireme::io {

/// Writes into a file that is there; a thread of its own does so while the caller makes the next bytes. Bytes that
/// follow one another pass by the page cache in blocks where the file system permits (O_DIRECT).
class BlockWriter {
 public:
  /// IoError or EnvironmentError where the file cannot be opened for writing.
  explicit BlockWriter(std::string path);
  /// Without `finish` the file has anything there.
  ~BlockWriter();
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  /// Writes bytes to this place. Throws what a write of earlier ones threw: IoError, EnvironmentError.
  void write(std::int64_t offset_bytes, std::span<const std::byte> bytes);
  /// Waits for all writes. Then the file has all bytes, though they may not be on the disk. Throws as `write`.
  void finish();

 private:
  /// Bytes [begin, end) of the file, where they stand in memory that begins at a multiple of the alignment before.
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
  Descriptor direct_;  // null where the file system has no direct access
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
