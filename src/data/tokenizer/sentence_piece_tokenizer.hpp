#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Text of the payload of SentencePiece's tokenizer: a title, then the bytes of tokenizer.model, escaped.
std::string sentence_piece_payload(std::string_view model);
/// The inverse. Throws DataError if the payload is damaged.
std::string sentence_piece_model(std::string_view payload);

/// Returns the pieces by id. Throws as `make_sentence_piece_tokenizer`.
std::vector<std::string> sentence_pieces(std::string_view model);

}  // namespace trireme::data
