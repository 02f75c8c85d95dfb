#include "src/data/tokenizer/tokenizer.hpp"

#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/data/text/words.hpp"
#include "src/data/tokenizer/bpe_tokenizer.hpp"
#include "src/data/tokenizer/null_tokenizer.hpp"
#include "src/data/tokenizer/wordpiece_tokenizer.hpp"

namespace trireme::data {
namespace {

constexpr const char* byte_payload = "trireme bytes 1\n";

class ByteTokenizer final : public Tokenizer {
 public:
  const std::string& name() const override { return name_; }
  std::int64_t vocabulary_size() const override { return 257; }
  std::int32_t end_of_document() const override { return 256; }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }

  void decode(std::span<const std::int32_t> ids, std::string& bytes) const override {
    for (const std::int32_t id : ids) {
      TRIREME_CHECK(id >= 0 && id <= 256, DataError, "token {} is not in the byte vocabulary of 257 ids", id);
      if (id < 256) bytes += static_cast<char>(id);
    }
  }

  bool can_cut(std::string_view, std::size_t) const override { return true; }
  std::string payload() const override { return byte_payload; }

 private:
  std::string name_ = "bytes";
};

}  // namespace

bool Tokenizer::can_cut(std::string_view text, std::size_t at) const { return is_word_cut(text, at); }

std::string Tokenizer::digest() const {
  const std::string definition = payload();
  return trireme::digest(definition.data(), definition.size());
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> make_gpt2_tokenizer(BpeVocabulary vocabulary) {
  return std::make_unique<BpeTokenizer>("gpt2", std::move(vocabulary));
}

std::unique_ptr<Tokenizer> make_huggingface_tokenizer(BpeVocabulary vocabulary) {
  return std::make_unique<BpeTokenizer>("huggingface", std::move(vocabulary));
}

std::unique_ptr<Tokenizer> make_wordpiece_tokenizer(WordPieceVocabulary vocabulary) {
  return std::make_unique<WordPieceTokenizer>(std::move(vocabulary));
}

std::unique_ptr<Tokenizer> make_null_tokenizer(std::int64_t vocabulary_size, std::int64_t end_of_document) {
  return std::make_unique<NullTokenizer>(vocabulary_size, end_of_document);
}

std::unique_ptr<Tokenizer> tokenizer_from_payload(const std::string& name, const std::string& payload) {
  if (name == "gpt2") return make_gpt2_tokenizer(bpe_from_payload(payload));
  if (name == "null") return NullTokenizer::from_payload(payload);
  if (name == "huggingface") return make_huggingface_tokenizer(bpe_from_payload(payload));
  if (name == "wordpiece") return make_wordpiece_tokenizer(wordpiece_from_payload(payload));
  TRIREME_CHECK(name == "bytes", DataError, "unknown tokenizer '{}'. Try bytes, gpt2, huggingface, null or wordpiece",
                name);
  TRIREME_CHECK(payload == byte_payload, DataError, "the embedded definition of the byte tokenizer is damaged");
  return make_byte_tokenizer();
}

}  // namespace trireme::data
