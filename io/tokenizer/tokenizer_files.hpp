#pragma once

#include <string>
#include <string_view>

#include "src/data/tokenizer/byte_spelling.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::io {

using data::bytes_of;
using data::spelling_of;

/// Reads GPT-2's two files: the vocabulary, a JSON object {"token": id, ...} (encoder.json, vocab.json), and the
/// merges, a line "left right" each, best first, after an optional line "#version" (vocab.bpe, merges.txt). Both spell
/// bytes as printable characters by GPT-2's table. Throws IoError if a file cannot be read, DataError naming file
/// and line or entry where it is damaged. The merges are checked against the vocabulary by `make_gpt2_tokenizer`.
data::BpeVocabulary read_bpe_files(const std::string& vocabulary_path, const std::string& merges_path);
/// Reads the contents of GPT-2's two files; the paths are for messages.
data::BpeVocabulary parse_bpe_files(const std::string& vocabulary, const std::string& vocabulary_path,
                                    const std::string& merges, const std::string& merges_path);
/// The contents of the two files.
std::string bpe_vocabulary_text(const data::BpeVocabulary& vocabulary);
std::string bpe_merges_text(const data::BpeVocabulary& vocabulary);
/// Writes the two files, the merges first; each is renamed into place once on disk. Throws IoError.
void write_bpe_files(const data::BpeVocabulary& vocabulary, const std::string& vocabulary_path,
                     const std::string& merges_path);

/// Reads BERT's vocabulary (vocab.txt): a token a line, whose number from 0 is its id. Throws IoError, or DataError
/// naming the line. `make_wordpiece_tokenizer` checks the tokens.
data::WordPieceVocabulary read_wordpiece_file(const std::string& path);
/// Reads the contents of BERT's vocabulary; the path is for messages.
data::WordPieceVocabulary parse_wordpiece_file(std::string_view text, const std::string& path);

}  // namespace trireme::io
