#include "src/data/tokenizer/sentence_piece_tokenizer.hpp"

#ifdef TRIREME_HAS_SENTENCE_PIECE
#include <sentencepiece_processor.h>
#endif

#include <algorithm>
#include <cmath>

#include "src/base/check.hpp"
#include "src/data/text/words.hpp"
#include "src/data/tokenizer/character_words.hpp"
#include "src/data/tokenizer/payload_lines.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::data {
namespace {

constexpr std::string_view sentence_piece_title = "trireme sentencepiece 1";

}  // namespace

std::string sentence_piece_payload(std::string_view model) {
  return fmt::format("{}\n{}\n", sentence_piece_title, escape_bytes(model));
}

std::string sentence_piece_model(std::string_view payload) {
  PayloadLines lines(payload);
  lines.title(sentence_piece_title);
  std::string model = lines.texts(1)[0];
  lines.finish();
  return model;
}

#ifdef TRIREME_HAS_SENTENCE_PIECE
namespace {

using Processor = sentencepiece::SentencePieceProcessor;

void check_status(const sentencepiece::util::Status& status, const char* what) {
  TRIREME_CHECK(status.ok(), DataError, "SentencePiece cannot {}: {}", what, status.ToString());
}

void load_model(std::string_view model, Processor& processor) {
  check_status(processor.LoadFromSerializedProto(model), "read the tokenizer.model");
}

/// Field `normalizer_spec.add_dummy_prefix` of a serialized model, set to false: behind a model it replaces the earlier
/// value.
constexpr std::string_view without_prefix("\x1A\x02\x18\x00", 4);

std::vector<int> encoded(const Processor& processor, std::string_view text) {
  std::vector<int> ids;
  check_status(processor.Encode(text, &ids), "encode a text");
  return ids;
}

/// The tokenizer of a tokenizer.model, a unigram model or a BPE, by SentencePiece's library. It normalises texts as the
/// model says: bytes that are not UTF-8 become U+FFFD, for instance, and decoding does not restore them.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::string model) : Tokenizer("sentencepiece"), model_(std::move(model)) {
    load_model(model_, processor_);
    load_model(model_ + std::string(without_prefix), inner_);
    TRIREME_CHECK(processor_.eos_id() >= 0, DataError,
                  "the tokenizer.model has no token </s>, which ends documents: train it with one");
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      const std::optional<char> byte = processor_.IsByte(id) ? byte_of_token(piece) : std::nullopt;
      texts_.push_back(byte                       ? std::string(1, *byte)
                       : processor_.IsControl(id) ? ""
                       : processor_.IsUnknown(id) ? processor_.DecodeIds({id})
                                                  : replaced(piece, space_mark, " "));
      std::string_view word = piece;
      while (word.starts_with(space_mark)) word.remove_prefix(space_mark.size());
      const float rank = processor_.GetScore(id);
      can_cut_ = can_cut_ && rank == std::floor(rank) && word.find(space_mark) == word.npos;
    }
    const std::vector<int> prefixed = encoded(processor_, "a"), plain = encoded(inner_, "a");
    adds_prefix_ = prefixed != plain;
    strips_ = encoded(processor_, " a ") == prefixed;
    can_cut_ = can_cut_ && (adds_prefix_ || !strips_);
    TRIREME_CHECK(!adds_prefix_ || processor_.IdToPiece(prefixed[0]).starts_with(space_mark), DataError,
                  "the tokenizer.model marks the ends of words (treat_whitespace_as_suffix), which this program does "
                  "not support");
    SpecialTokens special;
    for (const auto& [id, role] : {std::pair{processor_.bos_id(), &special.bos},
                                   {processor_.eos_id(), &special.eos},
                                   {processor_.pad_id(), &special.pad}}) {
      if (id >= 0) *role = id;
    }
    set_special(std::move(special));
  }

  std::int64_t vocabulary_size() const override { return std::ssize(texts_); }
  std::int32_t end_of_document() const override { return processor_.eos_id(); }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    const std::vector<int> found = encoded(processor_, text);
    ids.insert(ids.end(), found.begin(), found.end());
  }
  void encode_continuation(std::string_view text, std::vector<std::int32_t>& ids) const override {
    // Where spaces are stripped, the one that separates the parts is that before every text.
    const bool is_separate = strips_ && !text.empty() && is_ascii_space(text[0]);
    const std::vector<int> found = encoded(is_separate ? processor_ : inner_, text);
    ids.insert(ids.end(), found.begin(), found.end());
  }
  void decode(std::span<const std::int32_t> ids, std::string& bytes) const override {
    const std::size_t begin = bytes.size();
    decode_continuation(ids, bytes);
    if (adds_prefix_ && begin < bytes.size() && bytes[begin] == ' ') bytes.erase(begin, 1);
  }
  void decode_continuation(std::span<const std::int32_t> ids, std::string& bytes) const override {
    check_ids(ids);
    for (const std::int32_t id : ids) bytes += texts_[static_cast<std::size_t>(id)];
  }
  std::vector<std::pair<std::string, std::int32_t>> special_names() const override {
    std::vector<std::pair<std::string, std::int32_t>> names;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (processor_.IsControl(id)) names.emplace_back(processor_.IdToPiece(id), id);
    }
    return names;
  }
  /// Returns true only before a space, for a BPE without pieces that continue after one. Scores of a unigram model add
  /// up, and are rounded, along the entire text.
  bool can_cut(std::string_view text, std::size_t at) const override {
    return can_cut_ && text[at] == ' ' && is_word_cut(text, at) && static_cast<unsigned char>(text[at - 1]) < 0x80;
  }

 private:
  std::string definition() const override { return sentence_piece_payload(model_); }

  std::string model_;
  Processor processor_, inner_;  // for texts, and for parts behind a cut
  std::vector<std::string> texts_;
  bool adds_prefix_ = false, strips_ = false, can_cut_ = true;
};

}  // namespace

std::vector<std::string> sentence_pieces(std::string_view model) {
  Processor processor;
  load_model(model, processor);
  std::vector<std::string> pieces;
  for (int id = 0; id < processor.GetPieceSize(); ++id) pieces.push_back(processor.IdToPiece(id));
  return pieces;
}

std::unique_ptr<Tokenizer> make_sentence_piece_tokenizer(std::string model) {
  return std::make_unique<SentencePieceTokenizer>(std::move(model));
}

#else

std::vector<std::string> sentence_pieces(std::string_view) {
  throw EnvironmentError(
      "a tokenizer.model needs SentencePiece, and this program was built without it. Install it (Debian: "
      "libsentencepiece-dev) and build again");
}

std::unique_ptr<Tokenizer> make_sentence_piece_tokenizer(std::string model) {
  static_cast<void>(sentence_pieces(model));
  return nullptr;
}

#endif

}  // namespace trireme::data
