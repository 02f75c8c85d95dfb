#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/prepare/text_reader.hpp"

namespace trireme::io {

/// A part of the input that can be tokenized by itself: ranges of files, one after another.
struct InputPart {
  std::vector<TextRange> ranges = {};
  std::int64_t bytes = 0;  ///< bytes of the files on the disk
  bool begins_inside_document = false;
  std::int64_t cut_runs = 0;  ///< 1 where its beginning is a forced cut (`TextCut`)
  std::string digest = {};    ///< digest of names, sizes and times of its files, its place in them, and the options
};

/// Cuts files into parts of about `part_bytes` each: JSON behind an end of a line, texts as `cut_text` does, compressed
/// files not at all. The cuts depend on nothing else, so that every rank, now or later, makes the same. `purpose` says
/// what else decides what is made of a part, for its digest. Throws as TextReader does.
std::vector<InputPart> cut_input(const std::vector<std::string>& paths, const TextReaderOptions& options,
                                 std::int64_t part_bytes, const std::string& purpose);

}  // namespace trireme::io
