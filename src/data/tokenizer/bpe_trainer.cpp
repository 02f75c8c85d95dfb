#include "src/data/tokenizer/bpe_trainer.hpp"

#include <algorithm>
#include <queue>
#include <span>
#include <unordered_set>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/data/tokenizer/payload_lines.hpp"

namespace trireme::data {
namespace {

using Id = std::int32_t;

/// Two neighbours; compares by left, then right.
constexpr std::uint64_t pair_of(Id left, Id right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

struct PairHash {
  std::size_t operator()(std::uint64_t pair) const { return mix64(pair); }
};

/// A queued pair: the most frequent first, ties by smaller ids.
struct Candidate {
  std::int64_t count;
  std::uint64_t pair;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

/// GPT-2's order of the bytes: printable ones first.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> printable, others;
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    (prints ? printable : others).emplace_back(1, static_cast<char>(byte));
  }
  printable.insert(printable.end(), others.begin(), others.end());
  return printable;
}

class Trainer {
 public:
  Trainer(const std::vector<std::pair<std::string, std::int64_t>>& words, const BpeTrainingOptions& options)
      : options_(options) {
    vocabulary_.tokens = byte_tokens();
    std::vector<Id> byte_ids(256);
    for (std::size_t id = 0; id < 256; ++id) {
      byte_ids[static_cast<unsigned char>(vocabulary_.tokens[id][0])] = static_cast<Id>(id);
    }
    known_.insert(vocabulary_.tokens.begin(), vocabulary_.tokens.end());
    known_.insert(options.special_tokens.begin(), options.special_tokens.end());
    for (const auto& [word, count] : words) {
      begins_.push_back(symbols_.size());
      for (const char byte : word) symbols_.push_back(byte_ids[static_cast<unsigned char>(byte)]);
      sizes_.push_back(static_cast<std::uint32_t>(word.size()));
      counts_.push_back(count);
      count_pairs(begins_.size() - 1, 1);
    }
    for (const auto& [pair, place] : pairs_) queue_.push({place.count, pair});
    changed_.clear();
  }

  BpeVocabulary train(const std::function<void(std::int64_t, std::int64_t)>& progress) {
    const auto merges = options_.vocabulary_size - 256 - std::ssize(options_.special_tokens);
    while (std::ssize(vocabulary_.merges) < merges && !queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const auto place = pairs_.find(best.pair);
      if (place == pairs_.end() || place->second.count <= 0) continue;
      if (place->second.count != best.count) {  // its count has changed
        queue_.push({place->second.count, best.pair});
        continue;
      }
      if (best.count < options_.min_frequency) break;
      merge(best.pair);
      if (vocabulary_.merges.size() % 100 == 0) progress(std::ssize(vocabulary_.merges), merges);
    }
    for (const std::string& token : options_.special_tokens) vocabulary_.tokens.push_back(token);
    vocabulary_.end_of_document = static_cast<Id>(std::ssize(vocabulary_.tokens) - std::ssize(options_.special_tokens));
    return std::move(vocabulary_);
  }

 private:
  struct Occurrences {
    std::int64_t count = 0;
    std::vector<std::uint32_t> words;  // words with the pair; may hold outdated and repeated entries
  };

  std::span<Id> symbols(std::size_t word) { return {symbols_.data() + begins_[word], sizes_[word]}; }

  /// Adds or removes the pairs of a word.
  void count_pairs(std::size_t word, int sign) {
    const auto tokens = symbols(word);
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const std::uint64_t pair = pair_of(tokens[i], tokens[i + 1]);
      Occurrences& found = pairs_[pair];
      found.count += sign * counts_[word];
      if (sign < 0) continue;
      if (found.words.empty() || found.words.back() != word) found.words.push_back(static_cast<std::uint32_t>(word));
      if (tokens[i] == newest_ || tokens[i + 1] == newest_) changed_.push_back(pair);
    }
  }

  void merge(std::uint64_t pair) {
    const auto left = static_cast<Id>(pair >> 32), right = static_cast<Id>(pair & 0xFFFFFFFFu);
    const auto text = [&](Id id) -> const std::string& { return vocabulary_.tokens[static_cast<std::size_t>(id)]; };
    const std::string merged = text(left) + text(right);
    const std::vector<std::uint32_t> words = std::move(pairs_[pair].words);
    if (!known_.insert(merged).second) {
      pairs_[pair] = {};  // no entry of the queue refers to it
      return;
    }
    newest_ = static_cast<Id>(vocabulary_.tokens.size());
    vocabulary_.merges.emplace_back(text(left), text(right));
    vocabulary_.tokens.push_back(merged);
    for (const std::uint32_t word : words) {
      auto tokens = symbols(word);
      const auto holds =
          std::adjacent_find(tokens.begin(), tokens.end(), [&](Id a, Id b) { return pair_of(a, b) == pair; });
      if (holds == tokens.end()) continue;
      count_pairs(word, -1);
      std::size_t size = 0;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const bool is_pair = i + 1 < tokens.size() && tokens[i] == left && tokens[i + 1] == right;
        tokens[size++] = is_pair ? newest_ : tokens[i];
        i += is_pair ? 1 : 0;
      }
      sizes_[word] = static_cast<std::uint32_t>(size);
      count_pairs(word, 1);
    }
    pairs_.erase(pair);
    // Only pairs with the new token have become more frequent.
    std::ranges::sort(changed_);
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const std::uint64_t changed : changed_) queue_.push({pairs_[changed].count, changed});
    changed_.clear();
  }

  const BpeTrainingOptions& options_;
  BpeVocabulary vocabulary_;
  std::unordered_set<std::string> known_;
  std::vector<Id> symbols_;  // symbols of all words, one after another; a word that shrinks leaves a gap
  std::vector<std::size_t> begins_;
  std::vector<std::uint32_t> sizes_;
  std::vector<std::int64_t> counts_;
  std::unordered_map<std::uint64_t, Occurrences, PairHash> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<std::uint64_t> changed_;
  Id newest_ = -1;
};

}  // namespace

void WordCounts::add_word(std::string_view word, std::int64_t count) {
  auto found = counts_.find(word);
  if (found == counts_.end()) found = counts_.emplace(word, 0).first;
  found->second += count;
}

void WordCounts::add_text(std::string_view text, const SplitWords& splits) {
  for (auto [begin, end] : splits.words(text)) {
    while (begin != end) {
      const auto size = std::min(max_word_bytes, end - begin);
      add_word(text.substr(begin, size), 1);
      begin += size;
    }
  }
}

void WordCounts::add(const WordCounts& other, std::size_t partition, std::size_t partitions) {
  for (const auto& [word, count] : other.counts_) {
    if (fnv1a(word) % partitions == partition) add_word(word, count);
  }
}

std::int64_t WordCounts::forget(std::int64_t count) {
  std::int64_t occurrences = 0;
  std::erase_if(counts_, [&](const auto& word) {
    if (word.second > count) return false;
    occurrences += word.second;
    return true;
  });
  return occurrences;
}

std::vector<std::pair<std::string, std::int64_t>> WordCounts::sorted() const {
  std::vector<std::pair<std::string, std::int64_t>> words(counts_.begin(), counts_.end());
  std::ranges::sort(words);
  return words;
}

BpeVocabulary train_bpe(const std::vector<std::pair<std::string, std::int64_t>>& words,
                        const BpeTrainingOptions& options,
                        const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const std::int64_t min_size = 256 + std::ssize(options.special_tokens);
  TRIREME_CHECK(options.vocabulary_size >= min_size && options.vocabulary_size <= max_vocabulary_size, ConfigError,
                "a vocabulary of {} tokens is not possible; with all bytes and {} special tokens it has {} to {}",
                options.vocabulary_size, options.special_tokens.size(), min_size, max_vocabulary_size);
  return Trainer(words, options).train(progress);
}

}  // namespace trireme::data
