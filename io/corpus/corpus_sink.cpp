#include "io/corpus/corpus_sink.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "io/corpus/corpus_store.hpp"
#include "io/corpus/corpus_writer.hpp"
#include "io/h5/file.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/folder_lock.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"

namespace trireme::io {
namespace {

using Learned = std::optional<std::span<const data::LearnedRange>>;

/// Calls `visit` for the learned tokens among [begin, end), which become those from `first` on.
template <class Visit>
void for_each_moved(const Learned& learned, std::int64_t begin, std::int64_t end, std::int64_t first,
                    const Visit& visit) {
  if (!learned) return;
  data::for_each_learned(*learned, begin, end, [&](data::LearnedRange range) {
    visit(data::LearnedRange{range.begin - begin + first, range.end - begin + first});
  });
}

class CorpusCopy final : public prepare::CorpusSink {
 public:
  CorpusCopy(const std::string& path, const data::CorpusInfo& info)
      : lock_(path + ".lock", path),
        tokenizer_(data::tokenizer_from_payload(info.tokenizer, info.tokenizer_payload)),
        writer_(path, *tokenizer_) {}

  void take_from(const prepare::CorpusSource& store) override {
    tokens_.emplace(store);
    if (store.learned_ranges() && !learned_) writer_.begin_learned_ranges();
    learned_ = store.learned_ranges();
  }
  void append(std::int64_t begin, std::int64_t end) override {
    for_each_moved(learned_, begin, end, writer_.token_count(),
                   [&](data::LearnedRange range) { writer_.learn(range); });
    tokens_->read(begin, end, [&](const auto& tokens) {
      ids_.assign(tokens.begin(), tokens.end());
      writer_.append(ids_);
    });
  }
  void end_sentence() override { writer_.end_sentence(); }
  void end_document() override { writer_.end_document(); }
  std::int64_t documents() const override { return writer_.documents(); }
  prepare::CorpusSize finish() override {
    writer_.finish();
    return {writer_.documents(), writer_.token_count()};
  }

 private:
  FolderLock lock_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  CorpusWriter writer_;
  std::optional<VerifiedTokens> tokens_;
  Learned learned_;  // ranges of the selected corpus
  std::vector<std::int32_t> ids_;
};

namespace fs = std::filesystem;

/// Returns the name of `path` in a view in `folder`: relative if it lies in or below that folder, so both can be moved.
std::string name_from(const std::string& folder, const std::string& path) {
  const fs::path full(full_path(path));
  const fs::path relative = full.lexically_relative(folder);
  return relative.empty() || *relative.begin() == ".." ? full.string() : relative.string();
}

class CorpusView final : public prepare::CorpusSink {
 public:
  CorpusView(const std::string& path, const data::CorpusInfo& info)
      : lock_(path + ".lock", path),
        file_(path),
        folder_(fs::path(full_path(path)).parent_path().string()),
        info_(info) {}

  /// If `store` is a view, the new view refers to its sources.
  void take_from(const prepare::CorpusSource& store) override {
    if (store_ == nullptr) {
      has_sentences_ = !store.sentence_offsets().empty();
      has_learned_ranges_ = store.learned_ranges().has_value();
    }
    store_ = &store;
    info_.max_id = std::max(info_.max_id, store.info().max_id);
    source_numbers_.clear();
    for (const data::TokenStore* source : store.token_owners()) {
      const std::string name = name_from(folder_, source->name());
      TRIREME_CHECK(name.find('\n') == name.npos, ConfigError, "a view cannot name {}: its path has a line break",
                    name);
      const Source found{name, source->info().content_digest};
      const auto at = std::ranges::find(sources_, found);
      source_numbers_.push_back(at - sources_.begin());
      if (at == sources_.end()) sources_.push_back(found);
    }
  }
  void append(std::int64_t begin, std::int64_t end) override {
    for_each_moved(store_->learned_ranges(), begin, end, tokens_,
                   [&](data::LearnedRange range) { learned_ranges_.push_back(range); });
    while (begin < end) {
      const Stretch stretch = store_->stretch_at(begin);
      const std::int64_t size = std::min(stretch.size, end - begin);
      const std::int64_t source = source_numbers_[static_cast<std::size_t>(stretch.source)];
      const bool continues = !runs_.empty() && runs_.back().source == source &&
                             runs_.back().begin + (tokens_ - runs_.back().first) == stretch.begin;
      if (!continues) runs_.push_back({source, stretch.begin, tokens_});
      tokens_ += size;
      begin += size;
    }
  }
  void end_sentence() override { sentence_offsets_.push_back(tokens_); }
  void end_document() override { document_offsets_.push_back(tokens_); }
  std::int64_t documents() const override { return std::ssize(document_offsets_) - 1; }
  prepare::CorpusSize finish() override {
    if (!has_sentences_) sentence_offsets_.clear();
    std::string sources;
    for (const Source& source : sources_) sources += source.content_digest + " " + source.path + "\n";
    Digest table;
    const auto add = [&](const auto& values) { table.update(values.data(), values.size() * sizeof(values[0])); };
    add(document_offsets_);
    add(sentence_offsets_);
    add(learned_ranges_);
    add(runs_);
    for (const Source& source : sources_) add(source.content_digest);
    info_.content_digest = table.hex();
    h5::File file = h5::File::create(file_.path());
    const auto write = [&]<class T>(const char* path, const T* values, const Shape& shape) {
      file.create_dataset(path, dtype_of<T>(), shape).write(ConstTensorView(values, shape));
    };
    write_bytes(file, "/tokenizer_payload", info_.tokenizer_payload, {std::ssize(info_.tokenizer_payload)});
    write_bytes(file, "/sources", sources, {std::ssize(sources)});
    write("/document_offsets", document_offsets_.data(), {std::ssize(document_offsets_)});
    if (has_sentences_) write("/sentence_offsets", sentence_offsets_.data(), {std::ssize(sentence_offsets_)});
    const auto write_ranges = [&](const char* path, const auto& ranges, std::int64_t columns) {
      write(path, reinterpret_cast<const std::int64_t*>(ranges.data()), {std::ssize(ranges), columns});
    };
    if (has_learned_ranges_) write_ranges(learned_ranges_name, learned_ranges_, 2);
    write_ranges("/runs", runs_, 3);
    write_corpus_header(file, corpus_view_format_name, info_);
    file.close();
    file_.commit();
    return {documents(), tokens_};
  }

 private:
  using Stretch = prepare::CorpusSource::Stretch;
  struct Source {
    std::string path;
    std::string content_digest;
    bool operator==(const Source&) const = default;
  };
  FolderLock lock_;
  TemporaryFile file_;
  std::string folder_;
  data::CorpusInfo info_;  // with the largest id of all stores
  const prepare::CorpusSource* store_ = nullptr;
  bool has_sentences_ = false;
  bool has_learned_ranges_ = false;
  std::vector<Source> sources_;
  std::vector<std::int64_t> source_numbers_;  // indices in `sources_` of the selected corpus' sources
  std::vector<CorpusRun> runs_;
  std::int64_t tokens_ = 0;
  std::vector<std::int64_t> document_offsets_{0};
  std::vector<std::int64_t> sentence_offsets_{0};
  std::vector<data::LearnedRange> learned_ranges_;
};

}  // namespace

std::unique_ptr<prepare::CorpusSink> create_sink(prepare::CorpusKind kind, const std::string& path,
                                                 const data::CorpusInfo& info) {
  if (kind == prepare::CorpusKind::view) return std::make_unique<CorpusView>(path, info);
  return std::make_unique<CorpusCopy>(path, info);
}

}  // namespace trireme::io
