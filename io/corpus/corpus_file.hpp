#pragma once

#include <string>

#include "src/prepare/corpora.hpp"

namespace trireme::io {

using prepare::CorpusContents;

/// Writes a complete corpus (format: io/README.md) to `path`, in constant memory. Throws IoError or Hdf5Error.
void write_corpus_file(const std::string& path, const data::Tokenizer& tokenizer, const CorpusContents& contents);

}  // namespace trireme::io
