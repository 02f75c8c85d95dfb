#pragma once

#include <string>

#include "io/corpus/corpus_writer.hpp"

namespace trireme::io {

/// Adds the documents of a token file of llm.c to `writer`. The file is little-endian. It begins with int32
/// header[256]: magic, version, number of tokens, and unused words. The tokens follow: uint16 of GPT-2 (magic 20240520,
/// version 1) or uint32 of Llama 3 (magic 20240801, version 7). llm.c puts the end-of-document token before each
/// document, so the file is split before every `end_of_document`. Throws DataError naming file, byte and fault.
void import_llmc(const std::string& path, std::int32_t end_of_document, CorpusWriter& writer);

/// Returns whether the file has the header of a token file of llm.c.
bool is_llmc(const std::string& path);

}  // namespace trireme::io
