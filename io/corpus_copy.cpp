#include "io/corpus_copy.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>

#include "io/corpus_format.hpp"
#include "io/corpus_writer.hpp"
#include "io/folder_lock.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"

namespace trireme::io {
namespace {

void check_output(const std::string& input, const std::string& output) {
  std::error_code ignored;
  TRIREME_CHECK(!std::filesystem::equivalent(input, output, ignored), ConfigError, "{} is both input and output",
                output);
}

/// Gives a writer tokens of one corpus, in order, each block of them checked first.
class CheckedCopy {
 public:
  CheckedCopy(const CorpusStore& store, CorpusWriter& writer) : store_(store), writer_(writer) {}

  void append(std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t block = begin / corpus_block_tokens;
      if (block != checked_) {
        if (checked_ >= 0) store_.release_block(checked_);
        store_.verify_block(checked_ = block);
      }
      const std::int64_t stop = std::min(end, (block + 1) * corpus_block_tokens);
      const auto copy = [&](const auto& tokens) {
        const auto part = tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(stop - begin));
        ids_.assign(part.begin(), part.end());
      };
      std::visit(copy, store_.tokens());
      writer_.append(ids_);
      begin = stop;
    }
  }

 private:
  const CorpusStore& store_;
  CorpusWriter& writer_;
  std::int64_t checked_ = -1;
  std::vector<std::int32_t> ids_;
};

using Selection = std::function<bool(std::int64_t)>;

void copy_documents(const CorpusStore& store, const data::DocumentRange& range, const Selection& selected,
                    CorpusWriter& writer) {
  CheckedCopy copy(store, writer);
  const auto sentences = store.sentence_offsets();
  for (std::int64_t d = 0; d < range.documents; ++d) {
    if (!selected(d)) continue;
    std::int64_t begin = range.begin(d);
    const std::int64_t end = range.end(d);
    if (!sentences.empty()) {
      // The range may cut the document's first and last sentence.
      for (auto s = std::ranges::upper_bound(sentences, begin); begin < end; ++s) {
        copy.append(begin, std::min(*s, end));
        writer.end_sentence();
        begin = std::min(*s, end);
      }
    }
    copy.append(begin, end);
    writer.end_document();
  }
}

data::DocumentRange all_of(const CorpusStore& store) {
  return {store.document_offsets(), 0, store.documents(), 0, store.token_count()};
}

bool always(std::int64_t) { return true; }

CorpusSize finish(CorpusWriter& writer) {
  writer.finish();
  return {writer.documents(), writer.token_count()};
}

}  // namespace

CorpusSize merge_corpora(const std::vector<std::string>& inputs, const std::string& output) {
  std::vector<std::unique_ptr<CorpusStore>> stores;
  for (const std::string& input : inputs) {
    check_output(input, output);
    stores.push_back(std::make_unique<CorpusStore>(input));
    const data::CorpusInfo& first = stores.front()->info();
    const data::CorpusInfo& info = stores.back()->info();
    TRIREME_CHECK(info.tokenizer_digest == first.tokenizer_digest, DataError,
                  "{} was made by tokenizer {} ({}), {} by {} ({}): their ids mean different things. Build them with "
                  "the same tokenizer",
                  inputs.front(), first.tokenizer, first.tokenizer_digest, input, info.tokenizer,
                  info.tokenizer_digest);
    TRIREME_CHECK(stores.back()->sentence_offsets().empty() == stores.front()->sentence_offsets().empty(), DataError,
                  "of {} and {} one was built with sentences, the other without: build both alike", inputs.front(),
                  input);
  }
  const data::CorpusInfo& info = stores.front()->info();
  const auto tokenizer = data::tokenizer_from_payload(info.tokenizer, info.tokenizer_payload);
  const FolderLock lock(output + ".lock", output);
  CorpusWriter writer(output, *tokenizer);
  for (const auto& store : stores) copy_documents(*store, all_of(*store), always, writer);
  return finish(writer);
}

std::array<CorpusSize, 3> split_corpus(const std::string& input, const std::array<double, 3>& shares, data::SplitBy by,
                                       const std::array<std::string, 3>& outputs) {
  for (const std::string& output : outputs) check_output(input, output);
  const CorpusStore store(input);
  const auto tokenizer = data::tokenizer_from_payload(store.info().tokenizer, store.info().tokenizer_payload);
  std::array<CorpusSize, 3> sizes;
  for (const data::Split split : {data::Split::train, data::Split::valid, data::Split::test}) {
    const auto i = static_cast<std::size_t>(split);
    const data::DocumentRange range = data::documents_of(store, split, shares, by);
    if (range.documents == 0) continue;
    const FolderLock lock(outputs[i] + ".lock", outputs[i]);
    CorpusWriter writer(outputs[i], *tokenizer);
    copy_documents(store, range, always, writer);
    sizes[i] = finish(writer);
  }
  return sizes;
}

CorpusSize sample_corpus(const std::string& input, double share, std::uint64_t seed, const std::string& output) {
  check_output(input, output);
  const CorpusStore store(input);
  const auto tokenizer = data::tokenizer_from_payload(store.info().tokenizer, store.info().tokenizer_payload);
  const FolderLock lock(output + ".lock", output);
  CorpusWriter writer(output, *tokenizer);
  copy_documents(
      store, all_of(store),
      [&](std::int64_t d) {
        return static_cast<double>(splitmix64(mix64(seed), static_cast<std::uint64_t>(d)) >> 11) * 0x1p-53 < share;
      },
      writer);
  TRIREME_CHECK(writer.documents() > 0, DataError, "none of the {} documents of {} fell to a share of {}",
                store.documents(), input, share);
  return finish(writer);
}

}  // namespace trireme::io
