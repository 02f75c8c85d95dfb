#include "src/data/tokenizer/unigram_encoder.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "src/base/check.hpp"
#include "src/base/utf8.hpp"
#include "src/data/tokenizer/payload_lines.hpp"

namespace trireme::data {

UnigramEncoder::UnigramEncoder(const BpeVocabulary& vocabulary) : scores_(vocabulary.unigram->scores) {
  const auto& tokens = vocabulary.tokens;
  const auto is_id = [&](std::int32_t id) { return id >= 0 && static_cast<std::size_t>(id) < tokens.size(); };
  TRIREME_CHECK(std::ssize(tokens) <= max_vocabulary_size && scores_.size() == tokens.size(), DataError,
                "the unigram model has {} tokens and {} scores", tokens.size(), scores_.size());
  TRIREME_CHECK(std::ranges::all_of(scores_, [](double score) { return std::isfinite(score); }), DataError,
                "the unigram model has a score that is not a number");
  unknown_ = vocabulary.unigram->unknown;
  TRIREME_CHECK(is_id(unknown_) && is_id(vocabulary.end_of_document), DataError,
                "the unigram model of {} tokens has no unknown token, or none that ends documents", tokens.size());
  unknown_score_ = *std::ranges::min_element(scores_) - 10;
  std::vector<bool> is_left_out(tokens.size());
  is_left_out[static_cast<std::size_t>(vocabulary.end_of_document)] = true;
  for (const auto* list : {&vocabulary.special, &vocabulary.added}) {
    for (const std::int32_t id : *list) {
      TRIREME_CHECK(is_id(id), DataError, "the added token {} is not in the vocabulary of {} ids", id, tokens.size());
      is_left_out[static_cast<std::size_t>(id)] = true;
    }
  }
  std::vector<std::pair<std::string_view, std::int32_t>> words;
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    TRIREME_CHECK(!tokens[i].empty(), DataError, "the unigram model has an empty token, id {}", i);
    TRIREME_CHECK(
        ids.emplace(tokens[i], id).second || is_left_out[i] || is_left_out[static_cast<std::size_t>(ids[tokens[i]])],
        DataError, "the unigram model has token '{}' twice", quotation_of(tokens[i]));
    if (!is_left_out[i] && id != unknown_) words.emplace_back(tokens[i], id);
  }
  build_trie(std::move(words));
  if (!vocabulary.unigram->byte_fallback) return;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(byte_token(byte));
    if (found != ids.end()) byte_ids_.push_back(found->second);
  }
  TRIREME_CHECK(byte_ids_.size() == 256, DataError, "the unigram model falls back to bytes, but has tokens for only {}",
                byte_ids_.size());
}

/// Adds the nodes level by level, so that children follow one another.
void UnigramEncoder::build_trie(std::vector<std::pair<std::string_view, std::int32_t>> tokens) {
  std::ranges::sort(tokens);
  struct Range {
    std::size_t begin, end, depth;  // tokens that share their first `depth` bytes
  };
  std::vector<Range> ranges{{0, tokens.size(), 0}};  // by node
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    const Range range = ranges[node];
    nodes_[node].first_child = static_cast<std::uint32_t>(nodes_.size());
    for (std::size_t begin = range.begin; begin < range.end;) {
      const std::string_view token = tokens[begin].first;
      if (token.size() == range.depth) {
        nodes_[node].id = tokens[begin++].second;
        continue;
      }
      std::size_t end = begin;
      while (end < range.end && tokens[end].first[range.depth] == token[range.depth]) ++end;
      nodes_.push_back({.byte = static_cast<unsigned char>(token[range.depth])});
      ranges.push_back({begin, end, range.depth + 1});
      ++nodes_[node].children;
      begin = end;
    }
  }
  for (std::uint32_t i = 0; i < nodes_[0].children; ++i) {
    roots_[nodes_[nodes_[0].first_child + i].byte] = nodes_[0].first_child + i;
  }
}

std::uint32_t UnigramEncoder::child(std::uint32_t node, unsigned char byte) const {
  if (node == 0) return roots_[byte];
  const auto begin = nodes_.begin() + nodes_[node].first_child, end = begin + nodes_[node].children;
  const auto found = std::lower_bound(begin, end, byte, [](const Node& n, unsigned char b) { return n.byte < b; });
  return found != end && found->byte == byte ? static_cast<std::uint32_t>(found - nodes_.begin()) : 0;
}

void UnigramEncoder::encode(Word word, std::vector<std::int32_t>& ids) const {
  struct Best {
    double score = 0;
    std::size_t begin = SIZE_MAX;  // begin of the last token
    std::int32_t id = -1;
  };
  const std::size_t size = word.size();
  std::vector<Best> best(size + 1);  // by end
  const auto offer = [&](std::size_t begin, std::size_t end, std::int32_t id, double score) {
    const double sum = score + best[begin].score;
    if (best[end].begin == SIZE_MAX || sum > best[end].score) best[end] = {sum, begin, id};
  };
  for (std::size_t at = 0; at < size;) {
    const Utf8Character c = decode_utf8(word.begin + at, word.end);
    const std::size_t next = at + static_cast<std::size_t>(std::max(c.size_bytes, 1));
    bool is_token = false;
    std::uint32_t node = 0;
    for (std::size_t end = at; end < size;) {
      node = child(node, static_cast<unsigned char>(word.begin[end++]));
      if (node == 0) break;
      const std::int32_t id = nodes_[node].id;
      if (id < 0) continue;
      offer(at, end, id, scores_[static_cast<std::size_t>(id)]);
      is_token = is_token || end == next;
    }
    if (!is_token) offer(at, next, unknown_, unknown_score_);
    at = next;
  }
  std::vector<Best> path;  // with ends in `begin` of the one after
  for (std::size_t end = size; end > 0; end = best[end].begin) path.push_back(best[end]);
  std::ranges::reverse(path);
  for (std::size_t i = 0; i < path.size();) {
    const std::size_t begin = path[i].begin;
    if (path[i].id != unknown_) {
      ids.push_back(path[i++].id);
      continue;
    }
    while (i < path.size() && path[i].id == unknown_) ++i;
    const std::size_t end = i < path.size() ? path[i].begin : size;
    add_unknown({word.begin + begin, end - begin}, ids);
  }
}

/// Appends the ids of characters that are no tokens. Together they may be one whose score is even lower.
void UnigramEncoder::add_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size() && (node != 0 || i == 0); ++i) {
    node = child(node, static_cast<unsigned char>(text[i]));
  }
  if (node != 0 && nodes_[node].id >= 0) {
    ids.push_back(nodes_[node].id);
  } else if (byte_ids_.empty()) {
    ids.push_back(unknown_);
  } else {
    for (const char c : text) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  }
}

}  // namespace trireme::data
