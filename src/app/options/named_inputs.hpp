#pragma once

#include <string>
#include <vector>

namespace trireme::app {

/// Replaces what names several files by these, in an option's list: a folder by the files in it, a pattern of the shell
/// (*, ?, []) that is no file's name by the files that match, both in the order of their names, and "-" by a copy of
/// standard input.
class NamedInputs {
 public:
  /// Throws DataError if a folder has no files or nothing matches, ConfigError for "-" on several ranks, and IoError.
  NamedInputs(std::vector<std::string>& paths, int ranks);
  /// Releases the copy, which has no name: it is gone when this process ends, however it does.
  ~NamedInputs();
  NamedInputs& operator=(NamedInputs&&) = delete;

 private:
  NamedInputs() = default;

  int copy_ = -1;  // descriptor
};

}  // namespace trireme::app
