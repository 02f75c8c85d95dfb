#include "src/app/options/fim_options.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "src/app/manual/terminal_text.hpp"
#include "src/base/parse_number.hpp"
#include "src/data/tokenizer/bpe_tokenizer.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::app {
namespace {

/// Tokens of a corpus by id, for fill in the middle.
class Tokens {
 public:
  explicit Tokens(const data::CorpusInfo& corpus)
      : tokenizer_(data::tokenizer_from_payload(corpus.tokenizer, corpus.tokenizer_payload)) {
    const std::vector<std::string> special = tokenizer_->special_spellings();
    const std::set<std::string> special_spellings(special.begin(), special.end());
    // Ids of an unknown tokenizer have no text to cut: each is indivisible.
    const bool are_ids = corpus.tokenizer == "null";
    for (std::int32_t id = 0; id < tokenizer_->vocabulary_size(); ++id) {
      std::string& spelling = spellings_.emplace_back();
      tokenizer_->decode_continuation(std::span(&id, 1), spelling);
      special_.push_back(are_ids || spelling.empty() || special_spellings.contains(spelling));
    }
    const bool is_bpe = corpus.tokenizer == "gpt2" || corpus.tokenizer == "huggingface";
    if (is_bpe) {  // decoded, the token that ends documents has no text
      const auto end = static_cast<std::size_t>(corpus.end_of_document);
      spellings_.at(end) = data::bpe_from_payload(corpus.tokenizer_payload).tokens.at(end);
    }
  }

  data::TextCodec codec() const {
    const auto self = std::make_shared<const Tokens>(*this);
    return {.decode =
                [self](std::span<const std::int32_t> ids) {
                  std::string text;
                  self->tokenizer_->decode_continuation(ids, text);
                  return text;
                },
            .encode = [self](std::string_view text,
                             std::vector<std::int32_t>& ids) { self->tokenizer_->encode_continuation(text, ids); },
            .is_special =
                [self](std::int32_t id) {
                  return static_cast<std::size_t>(id) >= self->special_.size() ||
                         self->special_[static_cast<std::size_t>(id)];
                }};
  }

  /// Returns the id of a token given by its text or, if no token has it, by its number.
  std::int32_t find(const char* flag, const std::string& text, std::int64_t vocabulary_size) const {
    const auto found = std::ranges::find(spellings_, text);
    if (found != spellings_.end()) return static_cast<std::int32_t>(found - spellings_.begin());
    const auto id = parse_number<std::int32_t>(text);
    TRIREME_CHECK(id && *id >= 0 && *id < vocabulary_size, ConfigError,
                  "--{}: the tokenizer {} has no token '{}'. Try another, or the number of an unused id below {}; "
                  "--vocab-size can add some",
                  flag, tokenizer_->name(), shortened(text), vocabulary_size);
    return *id;
  }

 private:
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  std::vector<std::string> spellings_;
  std::vector<bool> special_;
};

}  // namespace

void FillInMiddleOptions::declare(Options& options) {
  options.add("fim-rate", &rate, "P",
              "Fill in the middle: fraction of the documents whose text is cut into prefix, middle and suffix and "
              "reordered.",
              between(0, 1));
  options.add("fim-spm-rate", &spm_rate, "P",
              "Fraction of these in the order suffix, prefix, middle; the others are prefix, suffix, middle.",
              between(0, 1));
  options.add("fim-split-sample", &split_token, "TOKEN",
              "Token that splits documents into fragments, such as the files of a repository; each is rearranged on "
              "its own.");
  options.add("fim-fragment-rate", &fragment_rate, "P",
              "Fraction of the fragments that are rearranged, in the documents of --fim-rate.", between(0, 1));
  options.add("fim-no-prefix", &no_prefix, "TEXT", "Leave documents and fragments that begin with this unchanged.");
  options.add("fim-prefix-token", &prefix_token, "TOKEN", "Token before the prefix: its text, or its number.");
  options.add("fim-middle-token", &middle_token, "TOKEN", "Token before the middle: its text, or its number.");
  options.add("fim-suffix-token", &suffix_token, "TOKEN", "Token before the suffix: its text, or its number.");
  options.add("fim-eod-token", &end_token, "TOKEN",
              "Token that ends documents: an error if it is not that of the corpus.");
}

void FillInMiddleOptions::check(const Options& options, Problems& problems) const {
  problems.need(options,
                {"fim-spm-rate", "fim-split-sample", "fim-fragment-rate", "fim-no-prefix", "fim-prefix-token",
                 "fim-middle-token", "fim-suffix-token", "fim-eod-token"},
                rate > 0, "a --fim-rate above 0");
  problems.expect(fragment_rate.has_value() == !split_token.empty(),
                  "--fim-split-sample and --fim-fragment-rate must be given together");
}

std::optional<data::FimOptions> FillInMiddleOptions::settled(const data::CorpusInfo& corpus,
                                                             std::int64_t vocabulary_size) const {
  if (rate == 0) return std::nullopt;
  const Tokens tokens(corpus);
  data::FimOptions fim{.rate = rate,
                       .spm_rate = spm_rate,
                       .split_token = {},
                       .fragment_rate = fragment_rate.value_or(0),
                       .no_prefix = no_prefix,
                       .prefix = tokens.find("fim-prefix-token", prefix_token, vocabulary_size),
                       .middle = tokens.find("fim-middle-token", middle_token, vocabulary_size),
                       .suffix = tokens.find("fim-suffix-token", suffix_token, vocabulary_size),
                       .end_of_document = static_cast<std::int32_t>(corpus.end_of_document),
                       .codec = tokens.codec()};
  TRIREME_CHECK(end_token.empty() || tokens.find("fim-eod-token", end_token, vocabulary_size) == fim.end_of_document,
                ConfigError, "--fim-eod-token {} is not the token that ends the corpus' documents: that has the id {}",
                shortened(end_token), fim.end_of_document);
  if (!split_token.empty()) fim.split_token = tokens.find("fim-split-sample", split_token, vocabulary_size);
  data::validate(fim, vocabulary_size);
  return fim;
}

}  // namespace trireme::app
