#include "src/data/shingles.hpp"

#include <algorithm>
#include <string>

#include "src/base/hash.hpp"
#include "src/data/utf8.hpp"
#include "src/data/words.hpp"

namespace trireme::data {
namespace {

std::uint64_t hash_of(const char* begin, const char* end) {
  return hash64(begin, static_cast<std::size_t>(end - begin), 0);
}

const char* next_character(const char* at, const char* end) {
  if (static_cast<unsigned char>(*at) < 0x80) return at + 1;
  return at + std::max(1, decode_utf8(at, end).size_bytes);
}

void add_characters(std::string_view text, int size, std::vector<std::uint64_t>& hashes) {
  const char* const text_end = text.data() + text.size();
  const char* begin = text.data();
  const char* end = begin;
  for (int i = 0; i < size && end != text_end; ++i) end = next_character(end, text_end);
  hashes.push_back(hash_of(begin, end));
  while (end != text_end) {
    begin = next_character(begin, text_end);
    end = next_character(end, text_end);
    hashes.push_back(hash_of(begin, end));
  }
}

void add_words(std::string_view text, int size, std::vector<std::uint64_t>& hashes) {
  std::vector<std::size_t> begins;  // of the last `size` words, by their number modulo `size`
  const auto period = static_cast<std::size_t>(size);
  std::size_t count = 0;
  std::size_t last_end = 0;
  for (WordReader words(text); words.next(); ++count) {
    if (count < period) begins.push_back(words.begin());
    begins[count % period] = words.begin();
    last_end = words.end();
    if (count + 1 < period) continue;
    hashes.push_back(hash_of(text.data() + begins[(count + 1) % period], text.data() + words.end()));
  }
  if (hashes.empty() && count > 0) hashes.push_back(hash_of(text.data() + begins[0], text.data() + last_end));
}

}  // namespace

void shingle_hashes(std::string_view text, const ShingleOptions& options, std::vector<std::uint64_t>& hashes) {
  hashes.clear();
  std::string folded_text;
  if (options.folding == ShingleFolding::case_and_white_space) {
    folded_text = folded(text);
    text = folded_text;
  }
  if (text.empty()) return;
  if (options.unit == ShingleUnit::characters) {
    add_characters(text, options.size, hashes);
  } else {
    add_words(text, options.size, hashes);
  }
}

void make_set(std::vector<std::uint64_t>& hashes) {
  std::ranges::sort(hashes);
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
}

double jaccard(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) {
  if (a.empty() && b.empty()) return 1;
  std::size_t common = 0;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    common += a[i] == b[j] ? 1 : 0;
    const bool step_a = a[i] <= b[j];
    const bool step_b = b[j] <= a[i];
    i += step_a ? 1 : 0;
    j += step_b ? 1 : 0;
  }
  return static_cast<double>(common) / static_cast<double>(a.size() + b.size() - common);
}

}  // namespace trireme::data
