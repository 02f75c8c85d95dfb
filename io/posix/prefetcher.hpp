#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/posix/file.hpp"

namespace trireme::io {

/// Prefetches file ranges by POSIX asynchronous I/O, overlapping the disk with the caller's computation. Bypasses the
/// page cache (O_DIRECT), which is useless for a model larger than memory. Never fails: the caller reads ranges that
/// cannot be prefetched.
class Prefetcher {
 public:
  Prefetcher();
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

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
