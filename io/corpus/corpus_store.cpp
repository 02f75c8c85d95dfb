#include "io/corpus/corpus_store.hpp"

#include <filesystem>
#include <optional>
#include <sstream>

#include "io/corpus/foreign_corpus.hpp"
#include "io/h5/file.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/comm/host_collectives.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::io {

namespace {

std::string read_bytes(const h5::File& file, const std::string& path) {
  const h5::Dataset dataset = file.dataset(path);
  TRIREME_CHECK(dataset.dtype() == DType::uint8, DataError, "{} is not an array of bytes", dataset.description());
  std::string bytes(static_cast<std::size_t>(dataset.numel()), '\0');
  dataset.read(TensorView(reinterpret_cast<std::uint8_t*>(bytes.data()), dataset.shape()));
  return bytes;
}

/// Position of the elements of a dataset.
struct FileExtent {
  std::size_t begin, count;
};

/// Checks that a dataset has this type and number of columns; `count` is that of its rows.
FileExtent extent_of(const h5::File& file, const std::string& path, DType dtype, std::int64_t columns = 1) {
  const h5::Dataset dataset = file.dataset(path);
  const Shape& shape = dataset.shape();
  const bool fits = columns == 1 ? shape.rank() == 1 : shape.rank() == 2 && shape[1] == columns;
  TRIREME_CHECK(dataset.dtype() == dtype && fits, DataError, "{} is {} {}, but must be {} in {} column{}",
                dataset.description(), name_of(dataset.dtype()), to_string(shape), name_of(dtype), columns,
                columns == 1 ? "" : "s");
  const std::int64_t begin = dataset.numel() == 0 ? 0 : dataset.file_offset();
  TRIREME_CHECK(begin % static_cast<std::int64_t>(size_of(dtype)) == 0, DataError,
                "{} begins at byte {}, which is not aligned", dataset.description(), begin);
  return {static_cast<std::size_t>(begin), static_cast<std::size_t>(dataset.numel() / columns)};
}

FileExtent extent_of_offsets(const h5::File& file, const std::string& path) {
  const FileExtent extent = extent_of(file, path, DType::int64);
  TRIREME_CHECK(extent.count >= 1, DataError, "'{}' of {} is empty", path, file.path());
  return extent;
}

/// A block of tokens; the last block may be shorter.
template <class T>
std::span<const T> block_of(std::span<const T> tokens, std::int64_t block) {
  const auto begin = static_cast<std::size_t>(block * corpus_block_tokens);
  return tokens.subspan(begin, std::min<std::size_t>(tokens.size() - begin, corpus_block_tokens));
}

/// Returns whether `sentences` contains every one of `documents`. Both are sorted, with the same ends.
bool holds_each(std::span<const std::int64_t> sentences, std::span<const std::int64_t> documents) {
  auto sentence = sentences.begin();
  return std::ranges::all_of(documents, [&](std::int64_t offset) {
    while (*sentence < offset) ++sentence;
    return *sentence == offset;
  });
}

}  // namespace

CorpusStore::CorpusStore(const std::string& path) : CorpusStore(path, Kind::any) {}

CorpusStore::CorpusStore(const std::string& path, Kind kind) : path_(path) {
  try {
    read(kind);
  } catch (const Hdf5Error& error) {  // the file was opened: its content is damaged
    throw DataError("{}; the corpus is damaged: build it again", error.what());
  }
}

void CorpusStore::read(Kind kind) {
  check_is_hdf5(path_);
  h5::File file = h5::File::open(path_, h5::Symlinks::follow);
  const h5::Object root = file.root();
  const std::string format = root.has_attribute("format") ? root.text_attribute("format") : "";
  const bool is_view = format == corpus_view_format_name;
  TRIREME_CHECK(is_view || format == corpus_format_name, DataError,
                "{} is not a corpus of this program; trireme corpus build makes one from text", path_);
  TRIREME_CHECK(!is_view || kind == Kind::any, DataError, "{} is a view itself", path_);
  const std::int64_t version = root.integer_attribute("format_version");
  TRIREME_CHECK(version == corpus_format_version, DataError,
                "{} has version {} of the corpus format, this program reads version {}: use the program that built it, "
                "or build it again",
                path_, version, corpus_format_version);
  info_.tokenizer = root.text_attribute("tokenizer");
  info_.tokenizer_digest = root.text_attribute("tokenizer_digest");
  info_.vocabulary_size = root.integer_attribute("vocabulary_size");
  info_.end_of_document = root.integer_attribute("end_of_document");
  info_.max_id = root.integer_attribute("greatest_id");
  info_.tokenizer_payload = read_bytes(file, "/tokenizer_payload");
  TRIREME_CHECK(info_.vocabulary_size > 0 && info_.vocabulary_size <= std::int64_t{1} << 31, DataError,
                "{} has a vocabulary of {} ids", path_, info_.vocabulary_size);
  const DType dtype = token_type(info_.vocabulary_size);
  std::vector<SourceName> sources;
  if (is_view) {
    std::istringstream lines(read_bytes(file, "/sources"));
    for (std::string line; std::getline(lines, line);) {
      sources.push_back({line.substr(0, digest_digits), line.substr(std::min(line.size(), digest_digits + 1))});
    }
  }
  if (!is_view) block_digests_ = read_bytes(file, "/block_digests");
  const FileExtent token_extent =
      is_view ? extent_of(file, "/runs", DType::int64, 3) : extent_of(file, "/tokens", dtype);
  const FileExtent offset_extent = extent_of_offsets(file, "/document_offsets");
  const auto has = [&, paths = file.dataset_paths()](const char* name) {
    return std::ranges::binary_search(paths, name);
  };
  const bool has_sentences = has("/sentence_offsets");
  const FileExtent sentence_extent = has_sentences ? extent_of_offsets(file, "/sentence_offsets") : FileExtent{};
  std::optional<FileExtent> learned_extent;
  if (has(learned_ranges_name)) learned_extent = extent_of(file, learned_ranges_name, DType::int64, 2);
  info_.content_digest = root.text_attribute("table_digest");
  if (root.has_attribute("ids_digest")) info_.ids_digest = root.text_attribute("ids_digest");
  file.close();

  mapping_ = std::make_unique<MappedFile>(path_);
  const auto map = [&]<class T>(std::span<const T>& elements, FileExtent extent) {
    const std::span<const std::byte> bytes = mapping_->bytes();
    TRIREME_CHECK(extent.begin <= bytes.size() && extent.count <= (bytes.size() - extent.begin) / sizeof(T), DataError,
                  "{} has changed while it was opened", path_);
    elements = {reinterpret_cast<const T*>(bytes.data() + extent.begin), extent.count};
  };
  map(offsets_, offset_extent);
  map(sentences_, sentence_extent);
  if (learned_extent) map(learned_.emplace(), *learned_extent);
  if (is_view) {
    map(runs_, token_extent);
  } else if (dtype == DType::uint32) {
    map(tokens_.emplace<std::span<const std::uint32_t>>(), token_extent);
  } else {
    map(tokens_.emplace<std::span<const std::uint16_t>>(), token_extent);
  }

  check_tables(is_view, sources, is_view ? offsets_.back() : static_cast<std::int64_t>(token_extent.count));
  if (info_.ids_digest.empty()) {  // a corpus of an earlier version
    info_.ids_digest = data::ids_digest_of(info_.tokenizer, info_.tokenizer_payload);
  }
  if (is_view) {
    open_sources(sources);
    check_runs();
  }
}

void CorpusStore::check_tables(bool is_view, const std::vector<SourceName>& sources, std::int64_t token_count) const {
  Digest table;
  table.update(offsets_.data(), offsets_.size_bytes());
  table.update(sentences_.data(), sentences_.size_bytes());
  if (learned_) table.update(learned_->data(), learned_->size_bytes());
  table.update(block_digests_.data(), block_digests_.size());
  table.update(runs_.data(), runs_.size_bytes());
  for (const SourceName& source : sources) table.update(source.content_digest.data(), source.content_digest.size());
  TRIREME_CHECK(table.hex() == info_.content_digest, DataError,
                "the document offsets or {} of {} are damaged: {} it again", is_view ? "sources" : "block digests",
                path_, is_view ? "make" : "build");
  TRIREME_CHECK(digest(info_.tokenizer_payload.data(), info_.tokenizer_payload.size()) == info_.tokenizer_digest,
                DataError, "the tokenizer in {} is damaged: build it again", path_);
  const auto decrease = std::ranges::adjacent_find(offsets_, std::ranges::greater{});
  TRIREME_CHECK(decrease == offsets_.end(), DataError,
                "the offsets of {} decrease: document {} begins at token {} and ends at {}; build it again", path_,
                decrease - offsets_.begin(), *decrease, *(decrease + 1));
  TRIREME_CHECK(offsets_.front() == 0 && offsets_.back() == token_count &&
                    (is_view || block_digests_.size() == static_cast<std::size_t>(blocks()) * digest_digits),
                DataError,
                "{} holds {} tokens, but its document offsets go from {} to {} and {} blocks have digests: build it "
                "again",
                path_, token_count, offsets_.front(), offsets_.back(), block_digests_.size() / digest_digits);
  TRIREME_CHECK(sentences_.empty() || (sentences_.front() == 0 && std::ranges::is_sorted(sentences_) &&
                                       sentences_.back() == token_count && holds_each(sentences_, offsets_)),
                DataError, "the sentences of {} do not make up its documents: build it again", path_);
  std::int64_t learned_end = 0;
  for (const data::LearnedRange& range : learned_.value_or(std::span<const data::LearnedRange>())) {
    TRIREME_CHECK(range.begin >= learned_end && range.end > range.begin && range.end <= token_count, DataError,
                  "the learned tokens of {} go from {} to {} after {}, of {} tokens: build it again", path_,
                  range.begin, range.end, learned_end, token_count);
    learned_end = range.end;
  }
  TRIREME_CHECK(info_.max_id >= -1 && info_.max_id < info_.vocabulary_size && info_.end_of_document >= -1 &&
                    info_.end_of_document < info_.vocabulary_size,
                DataError, "{} has a largest id of {} and ends documents with {}, in a vocabulary of {} ids", path_,
                info_.max_id, info_.end_of_document, info_.vocabulary_size);
}

void CorpusStore::open_sources(const std::vector<SourceName>& names) {
  constexpr const char* remedy = "put that corpus back, or make the view again";
  const std::filesystem::path folder = std::filesystem::canonical(path_).parent_path();  // the view's, not a link's
  std::int64_t blocks = 0;
  for (const SourceName& name : names) {
    const std::string source = (folder / name.path).string();
    try {
      sources_.emplace_back(new CorpusStore(source, Kind::no_view));
    } catch (const IoError& error) {
      throw IoError("{} is a view of {}: {}; {}", path_, source, error.what(), remedy);
    } catch (const DataError& error) {
      throw DataError("{} is a view of {}: {}; {}", path_, source, error.what(), remedy);
    }
    const data::CorpusInfo& info = sources_.back()->info();
    TRIREME_CHECK(info.content_digest == name.content_digest && info.ids_digest == info_.ids_digest, DataError,
                  "{} is a view of {}, which has changed since: its digest was {} and is {}; {}", path_, source,
                  name.content_digest, info.content_digest, remedy);
    first_blocks_.push_back(blocks);
    blocks += sources_.back()->blocks();
  }
  TRIREME_CHECK(!sources_.empty(), DataError, "{} is a view without sources: make it again", path_);
}

void CorpusStore::check_runs() const {
  bool is_good = runs_.empty() ? token_count() == 0 : runs_.front().first == 0;
  for (std::size_t i = 0; i < runs_.size() && is_good; ++i) {
    const CorpusRun& run = runs_[i];
    is_good = run.source >= 0 && run.source < std::ssize(sources_) && run_end(i) > run.first;
    if (!is_good) break;
    const std::int64_t there = sources_[static_cast<std::size_t>(run.source)]->token_count();
    is_good = run.begin >= 0 && run.begin <= there && run_end(i) - run.first <= there - run.begin;
  }
  TRIREME_CHECK(is_good, DataError, "the runs of the view {} do not make up its {} tokens: make it again", path_,
                token_count());
}

std::int64_t CorpusStore::run_end(std::size_t run) const {
  return run + 1 < runs_.size() ? runs_[run + 1].first : token_count();
}

CorpusStore::FoundRun CorpusStore::run_of(std::int64_t token) const {
  const auto i =
      static_cast<std::size_t>(std::ranges::upper_bound(runs_, token, {}, &CorpusRun::first) - runs_.begin());
  const CorpusRun run = i > 0 ? runs_[i - 1] : CorpusRun{};
  const std::int64_t end = i > 0 ? run_end(i - 1) : 0;
  // Checks again after `check_runs`: the file may have been overwritten since.
  TRIREME_CHECK(run.source >= 0 && run.source < std::ssize(sources_) && run.first <= token && token < end, DataError,
                "{} has no token {}: it is damaged, make it again", path_, token);
  return {run, end};
}

void CorpusStore::check_tokens(std::int64_t first, std::int64_t count) const {
  const std::int64_t size = std::visit([](const auto& all) { return std::ssize(all); }, tokens_);
  TRIREME_CHECK(first >= 0 && first <= size && count >= 0 && count <= size - first, DataError,
                "{} has no {} tokens from {} on, but {} in all: it is damaged, build it again", path_, count, first,
                size);
}

data::TokenSpan CorpusStore::tokens(std::int64_t first, std::int64_t count) const {
  if (!is_view()) {
    check_tokens(first, count);
    return std::visit([&](const auto& all) -> data::TokenSpan { return data::tokens_in(all, first, count); }, tokens_);
  }
  if (count == 0) return sources_.front()->tokens(0, 0);
  const auto [run, end] = run_of(first);
  return sources_[static_cast<std::size_t>(run.source)]->tokens(run.begin + (first - run.first),
                                                                std::min(count, end - first));
}

void CorpusStore::check_unchanged() const {
  mapping_->check_unchanged();
  for (const auto& source : sources_) source->check_unchanged();
}

std::vector<const data::TokenStore*> CorpusStore::token_owners() const {
  if (!is_view()) return {this};
  std::vector<const data::TokenStore*> owners;
  for (const auto& source : sources_) owners.push_back(source.get());
  return owners;
}

CorpusStore::Stretch CorpusStore::stretch_at(std::int64_t token) const {
  if (!is_view()) {
    check_tokens(token, 1);
    const std::int64_t block = token / corpus_block_tokens;
    return {0, token, block, std::min((block + 1) * corpus_block_tokens, token_count()) - token};
  }
  const auto [run, end] = run_of(token);
  const auto source = static_cast<std::size_t>(run.source);
  Stretch stretch = sources_[source]->stretch_at(run.begin + (token - run.first));
  stretch.source = run.source;
  stretch.block += first_blocks_[source];
  stretch.size = std::min(stretch.size, end - token);
  return stretch;
}

std::int64_t CorpusStore::blocks() const {
  if (is_view()) return first_blocks_.back() + sources_.back()->blocks();
  return (token_count() + corpus_block_tokens - 1) / corpus_block_tokens;
}

/// Returns the view's source that contains `block`, and converts `block` to the source's numbering.
const CorpusStore& CorpusStore::source_of_block(std::int64_t& block) const {
  const auto i = static_cast<std::size_t>(std::ranges::upper_bound(first_blocks_, block) - first_blocks_.begin()) - 1;
  block -= first_blocks_[i];
  return *sources_[i];
}

std::int64_t CorpusStore::verify_block(std::int64_t block) const {
  if (is_view()) {
    const CorpusStore& source = source_of_block(block);
    return source.verify_block(block);
  }
  const std::int64_t begin = block * corpus_block_tokens;
  const auto check = [&](const auto& tokens) -> std::int64_t {
    const auto ids = block_of(tokens, block);
    const auto expected =
        std::string_view(block_digests_).substr(static_cast<std::size_t>(block) * digest_digits, digest_digits);
    TRIREME_CHECK(digest(ids.data(), ids.size_bytes()) == expected, DataError,
                  "tokens {} to {} of {} are not those that were written: the file is damaged, build it again", begin,
                  begin + std::ssize(ids) - 1, path_);
    return *std::ranges::max_element(ids);
  };
  return std::visit(check, tokens_);
}

void CorpusStore::release_block(std::int64_t block) const {
  if (is_view()) {
    const CorpusStore& source = source_of_block(block);
    return source.release_block(block);
  }
  std::visit([&](const auto& tokens) { mapping_->release(std::as_bytes(block_of(tokens, block))); }, tokens_);
}

/// Checks blocks [begin, end) and returns their largest id.
std::int64_t CorpusStore::verify_blocks(std::int64_t begin, std::int64_t end, ThreadPool& pool) const {
  const std::int64_t at_once = std::int64_t{8} * pool.threads();
  std::int64_t max_id = -1;
  for (; begin < end; begin += at_once) {
    std::vector<std::int64_t> max_ids(static_cast<std::size_t>(std::min(at_once, end - begin)));
    std::vector<std::optional<DataError>> faults(max_ids.size());
    pool.parallel_for(std::ssize(max_ids), [&](std::int64_t task) {
      const auto i = static_cast<std::size_t>(task);
      try {
        max_ids[i] = verify_block(begin + task);
      } catch (const DataError& fault) {
        faults[i] = fault;
      }
      release_block(begin + task);
    });
    for (const auto& fault : faults) {
      if (fault) throw DataError(*fault);
    }
    max_id = std::max(max_id, std::ranges::max(max_ids));
  }
  return max_id;
}

void CorpusStore::verify() const {
  SelfCommunicator self;
  ThreadPool pool(1);
  verify(self, pool);
}

void CorpusStore::verify(Communicator& comm, ThreadPool& pool) const {
  std::int64_t max_id = -1;
  collectively(comm, [&] {
    const auto begin_of = [&](int rank) {
      return blocks() / comm.size() * rank + blocks() % comm.size() * rank / comm.size();
    };
    max_id = verify_blocks(begin_of(comm.rank()), begin_of(comm.rank() + 1), pool);
  });
  max_id = all_reduce_number(comm, max_id, ReduceOp::max);
  collectively(comm, [&] {
    verify_header(max_id);
    check_unchanged();
  });
}

/// Checks the attributes that describe the tokens and their vocabulary.
void CorpusStore::verify_header(std::int64_t max_id) const {
  TRIREME_CHECK(max_id < info_.vocabulary_size, DataError, "{} holds token {}, but its vocabulary has {} ids", path_,
                max_id, info_.vocabulary_size);
  TRIREME_CHECK(max_id == info_.max_id, DataError,
                "the tokens of {} have the largest id {}, but its header has {}: it is damaged", path_, max_id,
                info_.max_id);
  const auto tokenizer = data::tokenizer_from_payload(info_.tokenizer, info_.tokenizer_payload);
  TRIREME_CHECK(tokenizer->ids_digest() == info_.ids_digest, DataError,
                "the tokenizer in {} has the digest of ids {}, but the header has {}: it is damaged", path_,
                tokenizer->ids_digest(), info_.ids_digest);
  TRIREME_CHECK(
      tokenizer->vocabulary_size() == info_.vocabulary_size && tokenizer->end_of_document() == info_.end_of_document,
      DataError, "the tokenizer in {} has {} ids and ends documents with {}, but the header has {} and {}", path_,
      tokenizer->vocabulary_size(), tokenizer->end_of_document(), info_.vocabulary_size, info_.end_of_document);
}

}  // namespace trireme::io
