#include "src/prepare/corpus_copy.hpp"

#include <algorithm>
#include <functional>
#include <memory>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/base/log.hpp"

namespace trireme::prepare {
namespace {

void check_output(const Files& files, const CorpusSource& source, const std::string& output) {
  files.inputs->check_different(source.name(), output);
  for (const data::TokenStore* owner : source.token_owners()) files.inputs->check_different(owner->name(), output);
}

using Selection = std::function<bool(std::int64_t)>;

void copy_documents(const CorpusSource& store, const data::DocumentRange& range, const Selection& selected,
                    CorpusSink& sink) {
  sink.take_from(store);
  const auto sentences = store.sentence_offsets();
  for (std::int64_t d = 0; d < range.documents; ++d) {
    if (!selected(d)) continue;
    std::int64_t begin = range.begin(d);
    const std::int64_t end = range.end(d);
    if (!sentences.empty()) {
      // The range may cut through the document's first and last sentence.
      for (auto s = std::ranges::upper_bound(sentences, begin); begin < end && s != sentences.end(); ++s) {
        sink.append(begin, std::min(*s, end));
        sink.end_sentence();
        begin = std::min(*s, end);
      }
    }
    sink.append(begin, end);
    sink.end_document();
  }
  store.check_unchanged();
}

data::DocumentRange all_of(const CorpusSource& store) {
  return {store.document_offsets(), 0, store.documents(), 0, store.token_count()};
}

bool always(std::int64_t) { return true; }

}  // namespace

CorpusSize merge_corpora(const Files& files, const std::vector<std::string>& inputs, const std::string& output,
                         CorpusKind kind) {
  std::vector<std::unique_ptr<CorpusSource>> stores;
  for (const std::string& input : inputs) {
    stores.push_back(files.corpora->open(input));
    check_output(files, *stores.back(), output);
    const data::CorpusInfo& first = stores.front()->info();
    const data::CorpusInfo& info = stores.back()->info();
    TRIREME_CHECK(info.ids_digest == first.ids_digest, DataError,
                  "{} was made by tokenizer {} ({}), {} by {} ({}): their ids mean different things. Build them with "
                  "the same tokenizer",
                  inputs.front(), first.tokenizer, first.ids_digest, input, info.tokenizer, info.ids_digest);
    const std::string difference =
        data::compare_tokenizers(first.tokenizer, first.tokenizer_payload, info.tokenizer, info.tokenizer_payload)
            .difference;
    if (!difference.empty()) {
      log::info("{} keeps the special tokens of {}, which differ from those of {}: {}", output, inputs.front(), input,
                difference);
    }
    TRIREME_CHECK(stores.back()->sentence_offsets().empty() == stores.front()->sentence_offsets().empty(), DataError,
                  "of {} and {} one was built with sentences, the other without: build both alike", inputs.front(),
                  input);
    TRIREME_CHECK(stores.back()->learned_ranges().has_value() == stores.front()->learned_ranges().has_value(),
                  DataError,
                  "of {} and {} one holds conversations, of which a part is learned, the other text: keep them apart, "
                  "and give both to <data_path>",
                  inputs.front(), input);
  }
  const auto sink = files.corpora->create(kind, output, stores.front()->info());
  for (const auto& store : stores) copy_documents(*store, all_of(*store), always, *sink);
  return sink->finish();
}

std::array<CorpusSize, 3> split_corpus(const Files& files, const std::string& input,
                                       const std::array<double, 3>& fractions, data::SplitBy by,
                                       const std::array<std::string, 3>& outputs, CorpusKind kind) {
  const auto store = files.corpora->open(input);
  for (const std::string& output : outputs) check_output(files, *store, output);
  std::array<std::unique_ptr<CorpusSink>, 3> sinks;  // all first: none is written if one is refused
  std::array<data::DocumentRange, 3> ranges;
  for (const data::Split split : {data::Split::train, data::Split::valid, data::Split::test}) {
    const auto i = static_cast<std::size_t>(split);
    ranges[i] = data::documents_of(*store, split, fractions, by);
    if (ranges[i].documents > 0) sinks[i] = files.corpora->create(kind, outputs[i], store->info());
  }
  std::array<CorpusSize, 3> sizes;
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    if (!sinks[i]) continue;
    copy_documents(*store, ranges[i], always, *sinks[i]);
    sizes[i] = sinks[i]->finish();
  }
  return sizes;
}

CorpusSize sample_corpus(const Files& files, const std::string& input, double probability, std::uint64_t seed,
                         const std::string& output, CorpusKind kind) {
  const auto store = files.corpora->open(input);
  check_output(files, *store, output);
  const auto sink = files.corpora->create(kind, output, store->info());
  copy_documents(
      *store, all_of(*store),
      [&](std::int64_t d) {
        return static_cast<double>(splitmix64(mix64(seed), static_cast<std::uint64_t>(d)) >> 11) * 0x1p-53 <
               probability;
      },
      *sink);
  TRIREME_CHECK(sink->documents() > 0, DataError,
                "none of the {} documents of {} is in a sample of probability {}. Try a greater one",
                store->documents(), input, probability);
  return sink->finish();
}

}  // namespace trireme::prepare
