#include "src/prepare/token_copy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <sstream>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"

namespace trireme::prepare {
namespace {

constexpr std::size_t digest_bytes = 32;

/// Reads the tokens of parts one after another, from the first one of a part on.
class TokenStream {
 public:
  TokenStream(const Corpora& corpora, const std::vector<std::string>& paths, const std::vector<TakenTokens>& taken,
              std::size_t number)
      : corpora_(corpora), paths_(paths), taken_(taken), number_(number) {}

  void read(std::span<std::byte> out) {
    while (!out.empty()) {
      if (!part_) part_ = corpora_.open_part(paths_[number_], PartSection::tokens, taken_[number_].first);
      const std::size_t got = part_->read(out);
      out = out.subspan(got);
      if (got == 0) {
        part_.reset();
        ++number_;
      }
    }
  }

 private:
  const Corpora& corpora_;
  const std::vector<std::string>& paths_;
  const std::vector<TakenTokens>& taken_;
  std::size_t number_;
  std::unique_ptr<PartReader> part_;
};

}  // namespace

std::string TokenCopy::text() const {
  std::string text = fmt::format("{} {} {} {}\n", blocks.begin, blocks.token_bytes, blocks.block_tokens, blocks.tokens);
  for (const auto& [first, begin] : taken) text += fmt::format("{} {}\n", first, begin);
  return text;
}

TokenCopy TokenCopy::from_text(const std::string& text) {
  std::istringstream stream(text);
  TokenCopy copy;
  stream >> copy.blocks.begin >> copy.blocks.token_bytes >> copy.blocks.block_tokens >> copy.blocks.tokens;
  for (TakenTokens tokens; stream >> tokens.first >> tokens.begin;) copy.taken.push_back(tokens);
  return copy;
}

std::string TokenCopy::copy(const Files& files, const std::vector<std::string>& paths,
                            const std::vector<std::size_t>& numbers, const std::string& target,
                            ThreadPool& pool) const {
  const auto copy_part = [&](std::size_t number) {
    const std::int64_t begin = taken[number].begin;
    const std::int64_t end = number + 1 < taken.size() ? taken[number + 1].begin : blocks.tokens;
    const std::int64_t first = (begin + blocks.block_tokens - 1) / blocks.block_tokens;
    const auto file = files.work->open(target, Access::write);
    TokenStream stream(*files.corpora, paths, taken, number);
    std::vector<std::byte> bytes;
    const auto read = [&](std::int64_t tokens) {
      bytes.resize(static_cast<std::size_t>(tokens * blocks.token_bytes));
      stream.read(bytes);
    };
    // A block that began in an earlier part is read all the same, to verify this one.
    read(std::min(first * blocks.block_tokens, end) - begin);
    std::string result = fmt::format("{} ", first);
    for (std::int64_t at = first * blocks.block_tokens; at < end; at += blocks.block_tokens) {
      read(std::min(blocks.block_tokens, blocks.tokens - at));
      result += digest(bytes.data(), bytes.size());
      file->write(blocks.begin + at * blocks.token_bytes, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    return result + "\n";
  };
  std::vector<std::string> results(numbers.size());
  pool.parallel_for(std::ssize(numbers), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    results[at] = copy_part(numbers[at]);
  });
  files.work->open(target, Access::write)->sync();
  std::string text;
  for (const std::string& result : results) text += result;
  return text;
}

std::string TokenCopy::digests(const std::vector<std::string>& results) const {
  const auto count = static_cast<std::size_t>((blocks.tokens + blocks.block_tokens - 1) / blocks.block_tokens);
  std::string digests(count * digest_bytes, ' ');
  for (const std::string& result : results) {
    std::istringstream lines(result);
    std::size_t first = 0;
    std::string line;
    while (lines >> first && std::getline(lines, line)) {
      line.erase(0, 1);  // the blank
      digests.replace(first * digest_bytes, line.size(), line);
    }
  }
  TRIREME_CHECK(digests.size() == count * digest_bytes && digests.find(' ') == digests.npos, DataError,
                "the ranks did not write all of the {} blocks of the corpus", count);
  return digests;
}

}  // namespace trireme::prepare
