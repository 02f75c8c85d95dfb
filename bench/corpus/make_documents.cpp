// usage: make_documents BYTES [SEED] >FILE.jsonl
// Writes lines of JSON with documents that look like English to a tokenizer. Words have Zipf's proportions, and a few
// are new; there are sentences, paragraphs, numbers, names, quotations and accents. Documents have from some words to
// many pages, 3 kB in the mean. Of a hundred documents five repeat one of the last thousand, and five repeat one with
// 3% of its words changed. The same seed gives the same documents; with more bytes others follow them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numbers>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/hash.hpp"

namespace {

using trireme::splitmix64;

constexpr std::size_t remembered_documents = 1000;

class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t below(std::uint64_t n) { return (splitmix64(seed_, index_++) >> 32) * n >> 32; }  // n < 2^32
  double uniform() { return (static_cast<double>(splitmix64(seed_, index_++) >> 11) + 0.5) * 0x1p-53; }
  bool chance(double probability) { return uniform() < probability; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  std::uint64_t seed_;
  std::uint64_t index_ = 0;
};

// The commonest words, in order.
constexpr std::string_view common =
    "the of and to a in that is was he for it with as his on be at by I this had not are but from or have an they "
    "which "
    "one you were her all she there would their we him been has when who will more no if out so said what up its about "
    "into than them can only other new some could time these two may then do first any my now such like our over man "
    "me "
    "even most made after also did many before must through back years where much your way well down should because "
    "each "
    "just those people how too little state good very make world still own see men work long get here between both "
    "attempt "
    "being under never day same another know while last might us great old year off come since against go came right "
    "used take three na\xC3\xAFve caf\xC3\xA9 \xE2\x80\x94";

/// A word of some syllables, the same for the same number.
std::string word_number(std::uint64_t number) {
  static constexpr std::array onsets{"b", "c", "d",  "f",  "g",  "h",  "l",  "m",  "n",  "p",  "r",  "s",  "t",
                                     "v", "w", "st", "tr", "pr", "ch", "sh", "th", "br", "gr", "pl", "cr", ""};
  static constexpr std::array nuclei{"a", "e", "i", "o", "u", "ea", "ou", "ai", "e", "i", "a", "o"};
  static constexpr std::array codas{"", "", "", "n", "r", "l", "t", "s", "nd", "st", "ck", "m", "nt", "d"};
  static constexpr std::array endings{"", "", "", "s", "ed", "ing", "er", "ly", "tion", "al", "ness", "ment", "y", "e"};
  Random random(trireme::mix64(number + 1));
  std::string word;
  const std::uint64_t syllables = 1 + random.below(number < 2000 ? 2 : 3);
  for (std::uint64_t i = 0; i < syllables; ++i) {
    word += onsets[random.below(onsets.size())];
    word += nuclei[random.below(nuclei.size())];
    word += codas[random.below(codas.size())];
  }
  return word + endings[random.below(endings.size())];
}

class Writer {
 public:
  explicit Writer(std::uint64_t seed) : random_(seed), frequent_(1 << 16) {
    constexpr std::size_t vocabulary = 20000;
    std::vector<std::string> words;
    for (std::size_t begin = 0; begin < common.size();) {
      const std::size_t end = std::min(common.find(' ', begin), common.size());
      words.emplace_back(common.substr(begin, end - begin));
      begin = end + 1;
    }
    for (std::uint64_t number = 0; words.size() < vocabulary; ++number) words.push_back(word_number(number));
    double all = 0;
    for (std::size_t rank = 0; rank < vocabulary; ++rank) all += 1 / (static_cast<double>(rank) + 2.7);
    double sum = 0;
    std::size_t filled = 0;
    for (std::size_t rank = 0; rank < vocabulary; ++rank) {
      sum += 1 / (static_cast<double>(rank) + 2.7);
      const auto end = static_cast<std::size_t>(std::round(sum / all * static_cast<double>(frequent_.size())));
      for (; filled < end; ++filled) frequent_[filled] = words[rank];
    }
  }

  /// A document, its line breaks and quotation marks as JSON has them.
  std::string document() {
    const auto wanted = static_cast<std::size_t>(std::exp(7.6 + 0.9 * random_.normal()));
    std::string text;
    while (text.size() < wanted) {
      for (std::uint64_t sentences = 2 + random_.below(6); sentences > 0; --sentences) {
        add_sentence(text);
        text += sentences > 1 ? " " : "\\n\\n";
      }
    }
    text.erase(text.size() - 4);
    return text;
  }

  /// Returns the text with some of its words changed.
  std::string changed(const std::string& text) {
    std::string result;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find(' ', begin), text.size());
      if (random_.chance(0.03)) {
        add_word(result);
      } else {
        result.append(text, begin, end - begin);
      }
      if (end < text.size()) result += ' ';
      begin = end + 1;
    }
    return result;
  }

  Random& random() { return random_; }

 private:
  void add_word(std::string& text) {
    const std::uint64_t kind = random_.below(1000);
    if (kind < 10) {
      text += std::to_string(random_.below(kind < 5 ? 100 : 3000));
    } else if (kind < 30) {
      text += word_number(1'000'000 + random_.below(500'000));
    } else {
      text += frequent_[random_.below(frequent_.size())];
    }
  }

  void add_sentence(std::string& text) {
    const bool quoted = random_.chance(0.06);
    if (quoted) text += "\\\"";
    for (std::uint64_t words = 4 + random_.below(24), i = 0; i < words; ++i) {
      const std::size_t begin = text.size();
      add_word(text);
      if ((i == 0 || random_.chance(0.02)) && text[begin] >= 'a' && text[begin] <= 'z') text[begin] -= 'a' - 'A';
      if (i + 1 == words) break;
      text += random_.chance(0.06) ? ", " : random_.chance(0.01) ? "'s " : " ";
    }
    text += random_.chance(0.06) ? '?' : '.';
    if (quoted) text += "\\\"";
  }

  Random random_;
  std::vector<std::string> frequent_;
};

}  // namespace

int main(int argc, char** argv) {
  const long long wanted = argc > 1 ? std::atoll(argv[1]) : 0;
  if (argc > 3 || wanted <= 0) {
    std::fputs("usage: make_documents BYTES [SEED] >FILE.jsonl\n", stderr);
    return 2;
  }
  Writer writer(argc > 2 ? static_cast<std::uint64_t>(std::atoll(argv[2])) : 1);
  std::vector<std::string> recent(remembered_documents);
  long long written = 0;
  for (std::uint64_t number = 0; written < wanted; ++number) {
    std::string& slot = recent[number % remembered_documents];
    const std::uint64_t kind = number < remembered_documents ? 99 : writer.random().below(100);
    std::string text;
    if (kind < 10) text = recent[writer.random().below(remembered_documents)];
    if (kind < 5) text = writer.changed(text);
    slot = kind < 10 ? std::move(text) : writer.document();
    written += std::printf("{\"id\": %llu, \"text\": \"%s\"}\n", static_cast<unsigned long long>(number), slot.c_str());
  }
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  std::perror("make_documents");
  return 1;
}
