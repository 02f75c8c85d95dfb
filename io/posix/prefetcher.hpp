#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/posix/file_handle.hpp"
#include "io/posix/regular_file.hpp"

namespace trireme::io {

/// Reads ranges of files before they are used, by asynchronous I/O of POSIX: the disk works while the caller computes.
/// The bytes pass by the page cache (O_DIRECT), which a model beyond memory would fill to no use. Nothing here is an
/// error: where a range cannot be read in this way, the caller reads it in its own.
class Prefetcher {
 public:
  Prefetcher();
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Begins to read bytes [offset_bytes, offset_bytes + size_bytes) of the file at `path`. Memory: that of the ranges
  /// which were begun and not taken.
  void begin(const std::string& path, std::int64_t offset_bytes, std::int64_t size_bytes, Symlinks symlinks);

  /// Copies bytes of a range that was begun, after waiting for them, and releases what lies before. They should be
  /// taken in ascending order. Returns false where some belong to no range, or could not be read; then `out` has
  /// anything.
  bool take(const std::string& path, std::int64_t offset_bytes, std::span<std::byte> out);

 private:
  class Request;
  using Requests = std::vector<std::unique_ptr<Request>>;
  std::shared_ptr<const Descriptor> open_file(const std::string& path, Symlinks symlinks, bool shared);
  void keep(Requests::iterator request);
  std::map<std::string, std::weak_ptr<const Descriptor>> shared_;  // descriptors of small ranges
  Requests requests_;                                              // oldest first
  Requests idle_;                                                  // kept for their memory
};

}  // namespace trireme::io
