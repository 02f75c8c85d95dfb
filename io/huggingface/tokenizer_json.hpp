#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::io {

/// Reads the tokenizer in a model's folder with its special tokens: tokenizer.json of a BPE or WordPiece, else
/// Mistral's tekken.json, else tokenizer.model of SentencePiece, else vocab.json and merges.txt, else vocab.txt, with
/// do_lower_case of tokenizer_config.json. Null if none of these exist. `end_of_document` names the token of a BPE that
/// ends documents; if empty, it is <|endoftext|>,
/// <|end_of_text|>, </s> or tokenizer_config.json's eos_token, whichever exists first. Throws IoError, or DataError if
/// a file is damaged or of an unsupported kind.
std::unique_ptr<data::Tokenizer> read_tokenizer_of(const std::string& folder, const std::string& end_of_document);
/// Reads a BPE from a tokenizer.json or tekken.json of any name, with the special tokens of its folder.
std::unique_ptr<data::Tokenizer> read_tokenizer_json(const std::string& path, const std::string& end_of_document);
/// Reads a tokenizer.model of any name, likewise.
std::unique_ptr<data::Tokenizer> read_sentence_piece(const std::string& path);

/// Returns the files, by name, from which transformers makes an equal tokenizer: tokenizer.json, tokenizer_config.json,
/// vocab.json and merges.txt for GPT-2 or vocab.txt for BERT, tokenizer.model for SentencePiece, and those that the
/// tokenizer keeps, which are all for the tokenizer "null". `tokens` is the model's vocabulary size: further tokens of
/// a WordPiece are left out. `positions` is the longest sequence. DataError if two tokens would have the same name.
std::map<std::string, std::string> tokenizer_files(const data::Tokenizer& tokenizer, std::int64_t tokens,
                                                   std::int64_t positions);

}  // namespace trireme::io
