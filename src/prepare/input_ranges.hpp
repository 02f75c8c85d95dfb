#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/prepare/text_reader.hpp"

namespace trireme::prepare {

/// Part of the input that is tokenized separately: consecutive ranges of files.
struct InputRange {
  std::vector<FileRange> files = {};
  std::int64_t bytes = 0;  ///< on the disk
  bool begins_inside_document = false;
  std::int64_t forced_cuts = 0;  ///< 1 if it begins at a forced cut (`CutPoint`)
  std::string digest = {};       ///< digest of the options, and of names, sizes, times and ranges of its files
};

/// Cuts files into ranges of about `range_bytes` each: JSON after the end of a line, texts as `first_cut` does,
/// compressed files not at all. The cuts depend on nothing else, so every rank computes the same, now or later.
/// `purpose` lists everything else that a range's tokens depend on, for its digest. Throws as TextReader does.
std::vector<InputRange> cut_input(const Files& files, const std::vector<std::string>& paths,
                                  const TextReaderOptions& options, std::int64_t range_bytes,
                                  const std::string& purpose);

}  // namespace trireme::prepare
