#include "src/data/tokenizer/null_tokenizer.hpp"

#include <charconv>

#include "src/base/check.hpp"

namespace trireme::data {
namespace {
constexpr std::string_view payload_title = "trireme ids 1\n";
}

NullTokenizer::NullTokenizer(std::int64_t vocabulary_size, std::int64_t end_of_document)
    : vocabulary_size_(vocabulary_size), end_of_document_(static_cast<std::int32_t>(end_of_document)) {
  TRIREME_CHECK(vocabulary_size >= 1 && vocabulary_size <= std::int64_t{1} << 31 && end_of_document >= 0 &&
                    end_of_document < vocabulary_size,
                ConfigError, "a vocabulary of {} ids is not possible with {} as the id that ends documents",
                vocabulary_size, end_of_document);
}

void NullTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    while (at != end && is_space(*at)) ++at;
    if (at == end) return;
    std::int64_t id = -1;
    const auto [next, error] = std::from_chars(at, end, id);
    TRIREME_CHECK(error == std::errc{} && (next == end || is_space(*next)) && id >= 0 && id < vocabulary_size_,
                  DataError, "byte {} of the text: no id from 0 to {} stands there", at - text.data(),
                  vocabulary_size_ - 1);
    ids.push_back(static_cast<std::int32_t>(id));
    at = next;
  }
}

void NullTokenizer::decode(std::span<const std::int32_t> ids, std::string& bytes) const {
  for (const std::int32_t id : ids) {
    TRIREME_CHECK(id >= 0 && id < vocabulary_size_, DataError, "token {} is not in the vocabulary of {} ids", id,
                  vocabulary_size_);
    if (id != end_of_document_) bytes += fmt::format("{} ", id);
  }
}

std::string NullTokenizer::payload() const {
  return fmt::format("{}{} {}\n", payload_title, vocabulary_size_, end_of_document_);
}

std::unique_ptr<Tokenizer> NullTokenizer::from_payload(const std::string& payload) {
  std::int64_t size = 0;
  std::int64_t end_of_document = -1;
  const char* const end = payload.data() + payload.size();
  if (payload.starts_with(payload_title)) {
    const auto [space, error] = std::from_chars(payload.data() + payload_title.size(), end, size);
    if (error == std::errc{} && space != end) std::from_chars(space + 1, end, end_of_document);
  }
  TRIREME_CHECK(size >= 1 && size <= std::int64_t{1} << 31 && end_of_document >= 0 && end_of_document < size &&
                    payload == fmt::format("{}{} {}\n", payload_title, size, end_of_document),
                DataError, "the embedded definition of the null tokenizer is damaged");
  return std::make_unique<NullTokenizer>(size, end_of_document);
}

}  // namespace trireme::data
