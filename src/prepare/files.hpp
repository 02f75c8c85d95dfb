#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "src/prepare/corpora.hpp"

namespace trireme::prepare {

// Interfaces to the files that this folder reads and writes; `io::prepare_files` implements them. All throw IoError
// where the system refuses, and EnvironmentError where a limit of the process is met.

/// Bytes [begin, end) of a file, or up to its end.
struct FileRange {
  std::string path;
  std::int64_t begin = 0;
  std::int64_t end = INT64_MAX;
};

/// Bytes read in order: those of a file, or those compressed in it.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Reads up to `size_bytes` into `data`; fewer only at the end. Throws DataError where compressed data are damaged.
  virtual std::size_t read(char* data, std::size_t size_bytes) = 0;
  /// Bytes of the file read so far.
  virtual std::int64_t file_bytes_read() const = 0;
};

struct InputFileInfo {
  std::int64_t size_bytes = 0;  ///< on the disk
  bool is_compressed = false;   ///< such a file is only read whole
  std::string identity = {};    ///< path, size and time of modification: changes when the file changes
};

/// Files to read.
class InputFiles {
 public:
  virtual ~InputFiles() = default;
  /// Throws DataError where the path is no regular file, or its name says compressed and its bytes do not.
  virtual InputFileInfo inspect(const std::string& path) const = 0;
  /// Opens a range of a file. A compressed file is unpacked, and its range must be all of it.
  virtual std::unique_ptr<ByteSource> open(const FileRange& range) const = 0;
  /// Returns whether two paths name one file, or would.
  virtual bool is_same(const std::string& a, const std::string& b) const = 0;
};

/// File read and written at any position.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  /// Fills `bytes` with those from `offset` on. Throws IoError where the file ends before. Thread-safe.
  virtual void read(std::int64_t offset, std::span<char> bytes) const = 0;
  virtual void write(std::int64_t offset, std::string_view bytes) = 0;
  /// Waits until all bytes written here are on the disk.
  virtual void sync() = 0;
};

enum class Access {
  create,          ///< makes a new file, to read and write
  create_unnamed,  ///< likewise; the file vanishes with the process, however that ends
  write,           ///< opens a file that another rank has made
  read
};

enum class Compression { none, gzip, zstd };

/// Returns the compression that the end of a file's name selects: .gz, .zst or none.
constexpr Compression compression_by_name(std::string_view path) {
  if (path.ends_with(".gz")) return Compression::gzip;
  return path.ends_with(".zst") ? Compression::zstd : Compression::none;
}

/// Folder beside an output, which holds the files it is made of. One job has it at a time. The folder is removed with
/// this object, unless files in it are kept.
class WorkFolder {
 public:
  virtual ~WorkFolder() = default;
  /// Keeps no file.
  virtual void keep_none() = 0;
};

/// Files of work in progress, and their way to an output.
class WorkFiles {
 public:
  virtual ~WorkFiles() = default;
  /// Makes the folder at `path` for work on the output `target`, or takes over what a killed job left. All files in it
  /// but those called `kept` are removed, now and with the object. Throws ConfigError where `target` is there and is no
  /// regular file, EnvironmentError where another job has the folder.
  virtual std::unique_ptr<WorkFolder> lock_folder(const std::string& path, const std::string& target,
                                                  const std::set<std::string>& kept) const = 0;
  virtual std::unique_ptr<RandomAccessFile> open(const std::string& path, Access access) const = 0;
  virtual bool exists(const std::string& path) const = 0;
  /// Makes an empty file where there is none. Failures are ignored.
  virtual void touch(const std::string& path) const = 0;
  /// Brings a whole file to the disk under its name, replacing what had that name.
  virtual void commit(const std::string& path, const std::string& target) const = 0;
  /// Returns `bytes` as a gzip member or a Zstandard frame; several one after another unpack to all of the bytes.
  virtual std::string compressed(std::string_view bytes, Compression compression) const = 0;
};

/// Lines that are JSON objects.
class JsonLines {
 public:
  virtual ~JsonLines() = default;
  /// Returns the string under `key`. Throws DataError "path:line_number:column: ..." where the line is no JSON object,
  /// or the key is missing, there twice or not a string's.
  virtual std::string text(std::string_view line, const std::string& key, const std::string& path,
                           std::int64_t line_number) const = 0;
  /// Returns an object with the UTF-8 `text` under `key` alone, without the end of the line.
  virtual std::string line(const std::string& key, const std::string& text) const = 0;
  /// Returns the object with another text under `key`; other members stay as they are, in their order.
  virtual std::string with_text(std::string_view line, const std::string& key, const std::string& text) const = 0;
  /// Returns the value under `key` as JSON; "null" where there is none.
  virtual std::string value(std::string_view line, const std::string& key) const = 0;
};

/// All files of this folder's functions.
struct Files {
  std::shared_ptr<const InputFiles> inputs;
  std::shared_ptr<const WorkFiles> work;
  std::shared_ptr<const Corpora> corpora;
  std::shared_ptr<const JsonLines> json;
};

}  // namespace trireme::prepare
