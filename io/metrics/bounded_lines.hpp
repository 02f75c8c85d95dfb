#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"

namespace trireme::io {

/// Lines of a possibly damaged file, in bounded memory. Overlong and unterminated lines read as empty.
class BoundedLines {
 public:
  /// Opens the file; a missing one has no lines. Throws as `regular_file_size` if it is another kind of file or
  /// unreadable.
  explicit BoundedLines(const std::string& path) : path_(path), buffer_(static_cast<std::size_t>(max_bytes), '\0') {
    if (is_there(path)) regular_file_size(path);
    in_.open(path, std::ios::binary);
  }

  /// Moves to the next line. Returns false at the end of the file. Throws IoError if it cannot be read.
  bool next() {
    line_ = {};
    const bool ended = !in_.getline(buffer_.data(), max_bytes) && in_.gcount() == 0;
    TRIREME_CHECK(!in_.bad(), IoError, "cannot read {}: {}", path_, std::strerror(errno));
    if (ended) return false;
    ++number_;
    if (in_.good()) {
      line_ = {buffer_.data(), static_cast<std::size_t>(in_.gcount() - 1)};
    } else if (!in_.eof()) {
      in_.clear();
      in_.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    return true;
  }
  std::string_view line() const { return line_; }
  std::int64_t number() const { return number_; }  ///< line number, from 1

 private:
  static constexpr std::streamsize max_bytes = 1 << 20;
  std::string path_;
  std::ifstream in_;
  std::string buffer_;
  std::string_view line_;
  std::int64_t number_ = 0;
};

}  // namespace trireme::io
