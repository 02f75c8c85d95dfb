#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/h5/object.hpp"
#include "io/posix/file.hpp"

namespace trireme::io::h5 {

using io::Symlinks;

/// An HDF5 file, either written once from beginning to end or read. All library errors are Hdf5Errors; a readable file
/// that is not one of ours is a DataError.
///
/// Writing: `create`, groups and datasets, `close`. A crash or a failed call leaves an unusable file, even if it opens:
/// write under a temporary name and rename it (`io/posix/durable_file.hpp`).
///
/// Reading does not trust the file: it must be a regular file that holds only groups and datasets, joined by hard
/// links, with plain names; datasets are contiguous, unfiltered, of a type of DType, of at most five dimensions, and
/// lie inside the file; plugins are never loaded.
class File {
 public:
  /// Creates or empties `path`. Format version 1.10, whose metadata have checksums. Without time stamps, so the same
  /// calls write the same bytes.
  static File create(const std::string& path);
  static File open(const std::string& path, Symlinks symlinks);

  const std::string& path() const { return state_->path; }

  Object root();
  /// Creates a dataset and its missing parent groups. Space is allocated immediately; elements never written are
  /// undefined.
  Dataset create_dataset(const std::string& path, DType dtype, const Shape& shape);

  bool has(const std::string& path) const;
  /// Throws DataError if there is none or its type, layout or offset is not as above.
  Dataset dataset(const std::string& path) const;
  /// Paths of all datasets, sorted.
  const std::vector<std::string>& dataset_paths() const { return dataset_paths_; }

  /// Ends writing (or reading). Throws if any earlier write failed or the last ones fail now. After it returns the file
  /// is complete, though not yet on disk. Invalidates the file's objects.
  void close();

 private:
  File(std::shared_ptr<FileState> state, hid_t handle) : state_(std::move(state)), handle_(handle) {}
  void create_parents(const std::string& path);
  void survey();
  std::shared_ptr<FileState> state_;
  FileHandle handle_;
  std::vector<std::string> dataset_paths_;
};

/// "1.10.8"
std::string library_version();

}  // namespace trireme::io::h5
