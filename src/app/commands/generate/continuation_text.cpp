#include "src/app/commands/generate/continuation_text.hpp"

#include <algorithm>
#include <limits>
#include <string_view>

#include "src/base/utf8.hpp"

namespace trireme::app {
namespace {

/// Returns the bytes of `text` without an incomplete last character.
std::size_t complete_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const std::size_t begin = character_begin(text, text.size() - 1);
  const auto lead = static_cast<unsigned char>(text[begin]);
  const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  return text.size() - begin < size ? begin : text.size();
}

}  // namespace

std::string ContinuationText::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  tokenizer_.decode_continuation(tokenizer_.known_ids(tokens), text);
  return text;
}

std::size_t ContinuationText::first_stop(const std::string& text) const {
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, text.find(stop));
  return first;
}

bool ContinuationText::stops(std::span<const std::int32_t> tokens) const {
  return !stops_.empty() && first_stop(decode(tokens)) != std::string::npos;
}

std::size_t ContinuationText::settled_bytes(const std::string& text) const {
  std::size_t bytes = std::min(complete_bytes(text), first_stop(text));
  for (const std::string& stop : stops_) {
    for (std::size_t size = std::min(stop.size() - 1, text.size()); size > 0; --size) {
      if (!text.ends_with(std::string_view(stop).substr(0, size))) continue;
      bytes = std::min(bytes, text.size() - size);
      break;
    }
  }
  return bytes;
}

std::string ContinuationText::finish(infer::Continuation& continuation) const {
  std::vector<std::int32_t>& tokens = continuation.tokens;
  std::string text = decode(tokens);
  const std::size_t end = first_stop(text);
  if (end == std::string::npos) return text;
  text.resize(end);
  std::string whole;  // text of the tokens before the one in which the stop begins
  std::size_t kept = 0;
  for (; kept < tokens.size(); ++kept) {
    std::string longer = decode(std::span(tokens).first(kept + 1));
    if (longer.size() > end) break;
    whole = std::move(longer);
  }
  tokens.resize(kept);
  tokenizer_.encode_continuation(std::string_view(text).substr(whole.size()), tokens);
  if (decode(tokens) != text) {  // the tokenizer does not spell the rest
    tokens.resize(kept);
    text = whole;
  }
  if (!continuation.log_probabilities.empty()) {
    continuation.log_probabilities.resize(std::min(kept, continuation.log_probabilities.size()));
    for (std::size_t i = kept; i < tokens.size(); ++i) {
      continuation.log_probabilities.push_back({{tokens[i], std::numeric_limits<double>::quiet_NaN()}});
    }
  }
  return text;
}

}  // namespace trireme::app
