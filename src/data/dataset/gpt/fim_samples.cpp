#include "src/data/dataset/gpt/fim_samples.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/utf8.hpp"

namespace trireme::data {
namespace {

using Tokens = std::vector<std::int32_t>;
using TokenView = std::span<const std::int32_t>;

void append(Tokens& tokens, TokenView more) { tokens.insert(tokens.end(), more.begin(), more.end()); }

/// Text that may be cut before any of its characters. A special token is one character.
class CuttableText {
 public:
  CuttableText(TokenView tokens, const TextCodec& codec) : codec_(codec) {
    while (!tokens.empty()) {
      const auto special = std::ranges::find_if(tokens, codec.is_special);
      add(codec.decode(tokens.first(static_cast<std::size_t>(special - tokens.begin()))));
      if (special != tokens.end()) characters_.push_back({text_.size(), *special});
      tokens = tokens.subspan(static_cast<std::size_t>(std::min(special + 1, tokens.end()) - tokens.begin()));
    }
  }

  std::size_t size() const { return characters_.size(); }
  bool begins_with(std::string_view prefix) const {
    return text_.starts_with(prefix) && (characters_.empty() || characters_.front().special < 0);
  }
  /// Tokens of characters [begin, end).
  Tokens tokens(std::size_t begin, std::size_t end) const {
    Tokens tokens;
    std::size_t from = begin_of(begin);
    const auto encode_to = [&](std::size_t to) {
      if (to > from) codec_.encode(std::string_view(text_).substr(from, to - from), tokens);
      from = to;
    };
    for (std::size_t i = begin; i < end; ++i) {
      if (characters_[i].special < 0) continue;
      encode_to(characters_[i].begin);
      tokens.push_back(characters_[i].special);
    }
    encode_to(begin_of(end));
    return tokens;
  }

 private:
  struct Character {
    std::size_t begin = 0;      ///< first byte
    std::int32_t special = -1;  ///< id of a special token, which has no bytes
  };
  std::size_t begin_of(std::size_t i) const { return i < characters_.size() ? characters_[i].begin : text_.size(); }
  void add(const std::string& text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (i == 0 || !continues_character(text[i])) characters_.push_back({text_.size() + i, -1});
    }
    text_ += text;
  }

  const TextCodec& codec_;
  std::string text_;
  std::vector<Character> characters_;
};

/// Calls `take(part, separator)` for the parts of `tokens` between tokens equal to `separator`; the last part has none.
template <class Take>
void for_each_part(TokenView tokens, std::int32_t separator, const Take& take) {
  for (;;) {
    const auto end = std::ranges::find(tokens, separator);
    const bool last = end == tokens.end();
    take(tokens.first(static_cast<std::size_t>(end - tokens.begin())), last);
    if (last) return;
    tokens = tokens.subspan(static_cast<std::size_t>(end - tokens.begin()) + 1);
  }
}

bool draws(NumpyRandom& random, double rate) { return random.random() < rate; }

/// A document, or each of its fragments, rearranged with the options' probabilities.
Tokens document(TokenView tokens, const FimOptions& options, NumpyRandom& random) {
  if (!draws(random, options.rate)) return {tokens.begin(), tokens.end()};
  const bool has_fragments = options.split_token && std::ranges::find(tokens, *options.split_token) != tokens.end();
  if (!has_fragments) return rearranged(tokens, options, random);
  Tokens result;
  for_each_part(tokens, *options.split_token, [&](TokenView fragment, bool last) {
    append(result, !fragment.empty() && draws(random, options.fragment_rate)
                       ? rearranged(fragment, options, random)
                       : Tokens(fragment.begin(), fragment.end()));
    if (!last) result.push_back(*options.split_token);
  });
  return result;
}

}  // namespace

void validate(const FimOptions& options, std::int64_t vocabulary_size) {
  const auto check_rate = [](const char* field, double rate) {
    TRIREME_CHECK(rate >= 0 && rate <= 1, ConfigError, "{} {} must be from 0 to 1: it is a probability", field, rate);
  };
  check_rate("<fim_rate>", options.rate);
  check_rate("<fim_spm_rate>", options.spm_rate);
  check_rate("<fim_fragment_rate>", options.fragment_rate);
  const std::array ids = {options.prefix, options.middle, options.suffix, options.end_of_document};
  for (const std::int32_t id : ids) {
    TRIREME_CHECK(id >= 0 && id < vocabulary_size, ConfigError,
                  "a mark of <fim_rate> is token {}, but the vocabulary has ids from 0 to {}", id, vocabulary_size - 1);
  }
  TRIREME_CHECK((std::set{options.prefix, options.middle, options.suffix}).size() == 3, ConfigError,
                "<fim_prefix_token>, <fim_middle_token> and <fim_suffix_token> are the tokens {}, {} and {}. They must "
                "differ",
                options.prefix, options.middle, options.suffix);
}

Attributes attributes_of(const FimOptions& options) {
  std::string text = fmt::format("rate {:.17g}, spm {:.17g}, prefix {}, middle {}, suffix {}", options.rate,
                                 options.spm_rate, options.prefix, options.middle, options.suffix);
  if (options.split_token) {
    text += fmt::format(", fragments at {}, rate {:.17g}", *options.split_token, options.fragment_rate);
  }
  if (!options.no_prefix.empty()) text += fmt::format(", not of '{}'", options.no_prefix);
  return {{"data.fim", text}};
}

Tokens rearranged(TokenView tokens, const FimOptions& options, NumpyRandom& random) {
  const CuttableText text(tokens, options.codec);
  if (!options.no_prefix.empty() && text.begins_with(options.no_prefix)) return {tokens.begin(), tokens.end()};
  auto begin = static_cast<std::size_t>(random.randint(text.size() + 1));
  auto end = static_cast<std::size_t>(random.randint(text.size() + 1));
  if (begin > end) std::swap(begin, end);
  const Tokens prefix = text.tokens(0, begin);
  const Tokens middle = text.tokens(begin, end);
  const Tokens suffix = text.tokens(end, text.size());
  Tokens result = {options.prefix};
  const bool suffix_first = draws(random, options.spm_rate);
  if (!suffix_first) append(result, prefix);
  result.push_back(options.suffix);
  append(result, suffix);
  result.push_back(options.middle);
  if (suffix_first) append(result, prefix);
  append(result, middle);
  return result;
}

FimSamples::FimSamples(std::unique_ptr<NextTokenSamples> samples, FimOptions options, std::int64_t seed,
                       DocumentEnds ends)
    : NextTokenSamples(ends), samples_(std::move(samples)), options_(std::move(options)), seed_(seed) {}

FimSamples::Arrangement FimSamples::arrangement(std::int64_t index) const {
  Tokens text(static_cast<std::size_t>(sequence_length()) + 1);
  samples_->read_text(index, text);
  text.erase(std::ranges::find_if(text, [](std::int32_t token) { return token < 0; }), text.end());
  NumpyRandom random(static_cast<std::uint32_t>(seed_ + index));
  Arrangement result;
  const auto add_document = [&](TokenView tokens) {
    for_each_part(tokens, options_.end_of_document, [&](TokenView part, bool last) {
      if (!part.empty()) append(result.tokens, document(part, options_, random));
      if (!last) result.tokens.push_back(options_.end_of_document);
    });
  };
  TokenView rest = text;
  for (const std::int64_t start : samples_->document_starts(index)) {
    const std::size_t size = static_cast<std::size_t>(start) - (text.size() - rest.size());
    if (size >= rest.size()) break;
    add_document(rest.first(size));
    result.starts.push_back(std::ssize(result.tokens));
    rest = rest.subspan(size);
  }
  add_document(rest);
  return result;
}

void FimSamples::read_text(std::int64_t index, std::span<std::int32_t> text) const {
  Tokens tokens = arrangement(index).tokens;
  tokens.resize(text.size(), -1);
  std::ranges::copy(tokens, text.begin());
}

std::vector<std::int64_t> FimSamples::document_starts(std::int64_t index) const {
  std::vector<std::int64_t> starts = arrangement(index).starts;
  std::erase_if(starts, [&](std::int64_t start) { return start > sequence_length(); });
  return starts;
}

}  // namespace trireme::data
