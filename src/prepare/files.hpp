#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/check.hpp"
#include "src/prepare/corpora.hpp"

namespace trireme::prepare {

// Interfaces to the files that this folder reads and writes; `io::prepare_files` implements them. All throw IoError if
// a system call fails, and EnvironmentError if a process limit is reached.

/// Receives the bytes of the input that are done, and their total.
using ByteProgress = std::function<void(std::int64_t, std::int64_t)>;

/// Bytes [begin, end) of a file, or up to its end.
struct FileRange {
  std::string path;
  std::int64_t begin = 0;
  std::int64_t end = INT64_MAX;
  std::string identity = {};  ///< if given, `InputFileInfo::identity` that the file must keep while it is read
};

/// Sequential bytes of a file, unpacked if compressed.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Reads up to `size_bytes` into `data`; fewer only at the end. Throws DataError if compressed data are damaged.
  virtual std::size_t read(char* data, std::size_t size_bytes) = 0;
  /// Bytes of the file read so far.
  virtual std::int64_t file_bytes_read() const = 0;
};

struct InputFileInfo {
  std::int64_t size_bytes = 0;  ///< on the disk
  bool is_divisible = true;     ///< ranges can be read; otherwise only the entire file, compressed or a stream
  bool holds_rows = false;      ///< a table, such as Parquet: each row is read as a line of JSON
  std::string identity = {};    ///< path, size and time of modification: changes when the file changes
};

/// All columns of a table.
inline constexpr std::string_view all_columns = "*";

/// Files to read.
class InputFiles {
 public:
  virtual ~InputFiles() = default;
  /// Throws DataError if the path is not a regular file, or its name says compressed but its bytes do not.
  virtual InputFileInfo inspect(const std::string& path) const = 0;
  /// Opens a range of a file. That of an indivisible file must be the entire file. Compressed files are unpacked. Of a
  /// table, the row groups that begin in the range are read, and lines of JSON have the members that the keys `columns`
  /// (as of `JsonLines::text`) name, `all_columns`, or none.
  virtual std::unique_ptr<ByteSource> open(const FileRange& range, std::string_view columns = "") const = 0;
  /// Returns the first byte from `at` on where a row group of a table begins, or the file's size.
  virtual std::int64_t row_group_begin(const std::string& path, std::int64_t at) const = 0;
  /// Returns whether two paths name the same file, existing or not.
  virtual bool is_same(const std::string& a, const std::string& b) const = 0;
  /// Throws ConfigError if two paths name the same file. Ignores empty ones.
  void check_different(const std::string& a, const std::string& b, const char* roles = "input and output") const {
    TRIREME_CHECK(a.empty() || b.empty() || !is_same(a, b), ConfigError, "{} is both {}", b, roles);
  }
};

/// File read and written at any position.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  /// Fills `bytes` from `offset` on. Throws IoError at a premature end of file. Thread-safe.
  virtual void read(std::int64_t offset, std::span<char> bytes) const = 0;
  virtual void write(std::int64_t offset, std::string_view bytes) = 0;
  virtual std::int64_t size_bytes() const = 0;
  /// Syncs all bytes written here to disk.
  virtual void sync() = 0;
};

enum class Access {
  create,          ///< makes a new file, to read and write
  create_unnamed,  ///< likewise; the file vanishes with the process, however that ends
  write,           ///< opens a file created by another rank
  read
};

enum class Compression { none, gzip, zstd, bzip2, xz };

/// Extensions of compressed files.
inline constexpr std::array<std::pair<std::string_view, Compression>, 4> compression_extensions{
    {{".gz", Compression::gzip}, {".zst", Compression::zstd}, {".bz2", Compression::bzip2}, {".xz", Compression::xz}}};

/// Returns the compression selected by a file's extension.
constexpr Compression compression_by_name(std::string_view path) {
  for (const auto& [extension, compression] : compression_extensions) {
    if (path.ends_with(extension)) return compression;
  }
  return Compression::none;
}

/// Folder beside an output, for its intermediate files. Owned by one job at a time. Removed with this object, unless
/// files in it are kept.
class WorkFolder {
 public:
  virtual ~WorkFolder() = default;
  /// Keeps no file.
  virtual void keep_none() = 0;
};

/// Files of work in progress, and their commit to an output.
class WorkFiles {
 public:
  virtual ~WorkFiles() = default;
  /// Creates the folder at `path` for work on the output `target`, or takes over that of a killed job. Removes all
  /// files in it except `kept`, now and on destruction. Throws ConfigError if `target` exists and is not a regular
  /// file, EnvironmentError if another job owns the folder.
  virtual std::unique_ptr<WorkFolder> lock_folder(const std::string& path, const std::string& target,
                                                  const std::set<std::string>& kept) const = 0;
  virtual std::unique_ptr<RandomAccessFile> open(const std::string& path, Access access) const = 0;
  virtual bool exists(const std::string& path) const = 0;
  /// Creates an empty file if none exists. Ignores failures.
  virtual void touch(const std::string& path) const = 0;
  /// Syncs a complete file to disk and renames it to `target`, replacing any previous file.
  virtual void commit(const std::string& path, const std::string& target) const = 0;
  /// Returns `bytes` as a separate member, frame or stream; concatenated ones unpack to the concatenated bytes.
  virtual std::string compressed(std::string_view bytes, Compression compression) const = 0;
};

class JsonLines {
 public:
  virtual ~JsonLines() = default;
  /// Returns the string under `key`, or those under several, "title,meta.text", with an empty line between. Throws
  /// DataError "path:line_number:column: ..." if the line is not a JSON object, or a key is missing, duplicated or not
  /// a string.
  virtual std::string text(std::string_view line, const std::string& key, const std::string& path,
                           std::int64_t line_number) const = 0;
  /// Returns the string under one key likewise; none if the key is missing or its value null.
  virtual std::optional<std::string> optional_text(std::string_view line, const std::string& key,
                                                   const std::string& path, std::int64_t line_number) const = 0;
  /// Returns an object with only the UTF-8 `text` under `key`, without newline.
  virtual std::string line(const std::string& key, const std::string& text) const = 0;
  /// Returns the object with another text under `key`; other members and their order are unchanged.
  virtual std::string with_text(std::string_view line, const std::string& key, const std::string& text) const = 0;
  /// Returns the value under `key` as JSON; "null" if none.
  virtual std::string value(std::string_view line, const std::string& key) const = 0;
};

/// All file access of this folder's functions.
struct Files {
  std::shared_ptr<const InputFiles> inputs;
  std::shared_ptr<const WorkFiles> work;
  std::shared_ptr<const Corpora> corpora;
  std::shared_ptr<const JsonLines> json;
};

}  // namespace trireme::prepare
