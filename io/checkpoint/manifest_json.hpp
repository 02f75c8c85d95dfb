#pragma once

#include <cstddef>
#include <string>

#include "src/checkpoint/manifest.hpp"

namespace trireme::io {

/// Returns the manifest as JSON. Its first line holds the digest of all lines after it, so no bit can change
/// undetected. CheckpointError if an attribute is not UTF-8.
std::string manifest_to_json(const checkpoint::Manifest& manifest);

/// Bytes of that first line.
inline constexpr std::size_t manifest_head_bytes = 59;

/// Parses the manifest in `text`, read from `path` (for messages). CheckpointError if it was altered. For a later
/// format only `format_version` and `digest` are set. `checkpoint::validate` checks its consistency.
checkpoint::Manifest manifest_from_json(const std::string& text, const std::string& path);

}  // namespace trireme::io
