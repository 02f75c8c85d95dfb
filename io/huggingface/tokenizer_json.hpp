#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::io {

/// Reads the tokenizer in a model's folder: tokenizer.json of a byte-level BPE or WordPiece, else vocab.json and
/// merges.txt, else vocab.txt, for which tokenizer_config.json says whether text is brought to lower case. Null where
/// there is none of these. `end_of_document` names the token of a BPE that ends documents; empty: as
/// `read_huggingface_file`. Throws IoError, or DataError if a file is damaged or of a kind that is not known here.
std::unique_ptr<data::Tokenizer> read_tokenizer_of(const std::string& folder, const std::string& end_of_document);

/// The files by which transformers makes an equal tokenizer, by name: tokenizer.json, tokenizer_config.json, and
/// vocab.json and merges.txt of GPT-2's or vocab.txt of BERT's. Empty of the tokenizer "null". `tokens` are the ids
/// that the model has: of a WordPiece, further ones are left out. `positions` is the longest sequence. DataError if
/// two tokens would have one spelling.
std::map<std::string, std::string> tokenizer_files(const data::Tokenizer& tokenizer, std::int64_t tokens,
                                                   std::int64_t positions);

}  // namespace trireme::io
