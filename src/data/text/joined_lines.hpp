#pragma once

#include <string>
#include <string_view>

namespace trireme::data {

/// Returns `text` with one space for each run of two or more spaces, and for each run of line feeds after a letter, a
/// digit or an underscore, with the first space behind it. Line feeds after punctuation or white space stay. This is
/// `general_cleaning` in Megatron-LM's tools/openwebtext/cleanup_fix_dataset.py, which its README gives for CC-Stories.
/// Bytes that are not UTF-8 are kept.
std::string joined_lines(std::string_view text);

}  // namespace trireme::data
