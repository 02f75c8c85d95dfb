#pragma once

#include <memory>
#include <string>

#include "src/prepare/tokenized_part.hpp"

namespace trireme::io {

// A file with one part of an unfinished corpus (`prepare::PartWriter`). It holds the tokens, the ends of documents and
// the ends of sentences. A summary in JSON with a digest of each section, its size and a magic number end it.

std::unique_ptr<prepare::PartWriter> create_part(const std::string& path, std::int64_t vocabulary_size,
                                                 bool begins_inside_document);

std::unique_ptr<prepare::PartReader> open_part(const std::string& path, prepare::PartSection section,
                                               std::int64_t first);

}  // namespace trireme::io
