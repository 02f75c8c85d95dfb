#pragma once

#include <memory>
#include <string>

#include "src/prepare/corpora.hpp"

namespace trireme::io {

// A file with one part of an unfinished corpus (`prepare::PartWriter`). It holds the tokens, the ends of documents and
// the ends of sentences. It ends with a JSON summary including a digest of each section, the summary's size and a magic
// number.

std::unique_ptr<prepare::PartWriter> create_part(const std::string& path, std::int64_t vocabulary_size,
                                                 bool begins_inside_document);

std::unique_ptr<prepare::PartReader> open_part(const std::string& path, prepare::PartSection section,
                                               std::int64_t first);

}  // namespace trireme::io
