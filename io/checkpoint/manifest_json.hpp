#pragma once

#include <string>

#include "src/checkpoint/manifest.hpp"

namespace trireme::io {

/// The manifest as JSON. Its first line holds the digest of all lines behind it, so that no bit of it can change
/// unnoticed. CheckpointError where an attribute is not UTF-8.
std::string manifest_to_json(const checkpoint::Manifest& manifest);

/// The manifest in `text`, read from `path` (for messages). CheckpointError where it is not what was written. Of one in
/// a later format only `format_version` and `digest` are set. Whether the manifest makes sense `checkpoint::validate`
/// says.
checkpoint::Manifest manifest_from_json(const std::string& text, const std::string& path);

}  // namespace trireme::io
