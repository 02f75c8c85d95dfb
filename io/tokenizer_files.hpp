#pragma once

#include <string>

#include "src/data/tokenizer.hpp"

namespace trireme::io {

/// Reads GPT-2's two files: the vocabulary, a JSON object {"token": id, ...} (encoder.json, vocab.json), and the
/// merges, a line "left right" each, best first, after an optional line "#version" (vocab.bpe, merges.txt). Both spell
/// bytes as printable characters by GPT-2's table. Throws IoError where a file cannot be read, DataError naming file
/// and line or entry where it is not what it should be. The merges are checked against the vocabulary by
/// `make_gpt2_tokenizer`.
data::BpeVocabulary read_bpe_files(const std::string& vocabulary_path, const std::string& merges_path);

}  // namespace trireme::io
