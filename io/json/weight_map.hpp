#pragma once

#include <map>
#include <string>

namespace trireme::io {

/// Parses the index of a model whose weights are in several files, {"weight_map": {"TENSOR": "FILE", ...}, ...}.
/// Returns the files by tensor. Builds no tree: nesting cannot exhaust memory. Throws DataError naming `path` if it is
/// damaged, names a tensor twice, or a file that is not the name of one beside it.
std::map<std::string, std::string> parse_weight_map(const std::string& text, const std::string& path);

}  // namespace trireme::io
