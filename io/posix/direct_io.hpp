#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "io/posix/file.hpp"

namespace trireme::io {

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte, FreeMemory>;

/// Writes to an existing file from a separate thread while the caller produces the next bytes. Consecutive bytes bypass
/// the page cache in blocks (O_DIRECT) if the file system permits.
class BlockWriter {
 public:
  /// IoError or EnvironmentError if the file cannot be opened for writing.
  explicit BlockWriter(std::string path);
  /// Without `finish` the file's content is undefined.
  ~BlockWriter();
  BlockWriter& operator=(BlockWriter&&) = delete;

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

/// Prefetches file ranges by POSIX asynchronous I/O, overlapping the disk with the caller's computation. Bypasses the
/// page cache (O_DIRECT), which is useless for a model larger than memory. Never fails: the caller reads ranges that
/// cannot be prefetched.
class Prefetcher {
 public:
  Prefetcher();
  ~Prefetcher();
  Prefetcher& operator=(Prefetcher&&) = delete;

  /// Begins to read bytes [offset_bytes, offset_bytes + size_bytes) of the file at `path`. Memory: the ranges begun but
  /// not yet taken.
  void begin(const std::string& path, std::int64_t offset_bytes, std::int64_t size_bytes, Symlinks symlinks);

  /// Waits for and copies bytes of begun ranges, and releases those before. Take them in ascending order. Returns false
  /// if some belong to no range or could not be read; `out` is then undefined.
  bool take(const std::string& path, std::int64_t offset_bytes, std::span<std::byte> out);

 private:
  class Request;
  using Requests = std::vector<std::unique_ptr<Request>>;
  std::shared_ptr<const Descriptor> open_file(const std::string& path, Symlinks symlinks, bool shared);
  void keep(Requests::iterator request);
  std::map<std::string, std::weak_ptr<const Descriptor>> shared_;  // descriptors of small ranges
  Requests requests_;                                              // oldest first
  Requests idle_;                                                  // kept to reuse their memory
};

}  // namespace trireme::io
