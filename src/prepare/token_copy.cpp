#include "src/prepare/token_copy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <sstream>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"

namespace trireme::prepare {
namespace {

constexpr std::size_t digest_bytes = 32;
constexpr auto place_bytes = static_cast<std::int64_t>(sizeof(TakenTokens));

std::string_view bytes_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Reads the tokens of parts one after another, from the first one that is taken on.
class TokenStream {
 public:
  TokenStream(const Corpora& corpora, std::span<const std::string> paths, std::span<const TakenTokens> taken)
      : corpora_(corpora), paths_(paths), taken_(taken) {}

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
  std::span<const std::string> paths_;
  std::span<const TakenTokens> taken_;
  std::size_t number_ = 0;
  std::unique_ptr<PartReader> part_;
};

}  // namespace

TokenCopy::TokenCopy(const Files& files, const std::vector<std::string>& paths, const std::string& folder)
    : files_(files), paths_(paths), places_(folder + "/places"), target_(folder + "/corpus") {}

void TokenCopy::create_files() const {
  files_.work->open(places_, Access::create);
  files_.work->open(target_, Access::create);
}

void TokenCopy::place(std::size_t number, TakenTokens taken) const {
  const auto offset = static_cast<std::int64_t>(number) * place_bytes;
  files_.work->open(places_, Access::write)->write(offset, {reinterpret_cast<const char*>(&taken), sizeof(taken)});
}

std::optional<std::string> TokenCopy::copy_part(const TokenBlocks& blocks, std::size_t number) const {
  const auto up = [&](std::int64_t token) {
    const std::int64_t whole = (token + blocks.block_tokens - 1) / blocks.block_tokens * blocks.block_tokens;
    return std::min(whole, blocks.tokens);
  };
  // Places of this part and of those after it, up to the end of the last block that begins in it.
  std::vector<TakenTokens> taken;
  const auto places = files_.work->open(places_, Access::read);
  const std::int64_t known = places->size_bytes() / place_bytes;
  do {
    const std::int64_t next = static_cast<std::int64_t>(number + taken.size());
    if (next >= known) return {};
    TakenTokens place;
    places->read(next * place_bytes, {reinterpret_cast<char*>(&place), sizeof(place)});
    taken.push_back(place);
  } while (taken.size() < 2 || taken.back().begin < up(taken[1].begin));

  const auto file = files_.work->open(target_, Access::write);
  TokenStream stream(*files_.corpora, std::span(paths_).subspan(number), taken);
  std::vector<std::byte> bytes;
  const auto read = [&](std::int64_t tokens) {
    bytes.resize(static_cast<std::size_t>(tokens * blocks.token_bytes));
    stream.read(bytes);
  };
  const std::int64_t begin = taken[0].begin, end = taken[1].begin, first = up(begin);
  // A block that began in an earlier part is read all the same, to verify this one.
  read(std::min(first, end) - begin);
  std::string result = fmt::format("{} ", (begin + blocks.block_tokens - 1) / blocks.block_tokens);
  for (std::int64_t at = first; at < end; at += blocks.block_tokens) {
    read(up(at + 1) - at);
    result += digest(bytes.data(), bytes.size());
    file->write(blocks.begin + at * blocks.token_bytes, bytes_of(bytes));
  }
  return result + "\n";
}

void TokenCopy::sync() const { files_.work->open(target_, Access::write)->sync(); }

std::string digests_of(const TokenBlocks& blocks, const std::vector<std::string>& results) {
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
