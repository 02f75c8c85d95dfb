#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "io/posix/mapped_file.hpp"
#include "src/base/thread_pool.hpp"
#include "src/comm/communicator.hpp"
#include "src/prepare/corpora.hpp"
#include "src/tensor/dtype.hpp"

namespace trireme::io {

// Constants of the corpus format, for writer and reader; io/README.md describes it.
inline constexpr const char* corpus_format_name = "trireme-corpus";
inline constexpr const char* corpus_view_format_name = "trireme-corpus-view";
inline constexpr std::int64_t corpus_format_version = 1;
inline constexpr std::int64_t corpus_block_tokens = std::int64_t{1} << 20;
inline constexpr std::size_t digest_digits = 32;
inline constexpr const char* learned_ranges_name = "/learned_ranges";

constexpr DType token_type(std::int64_t vocabulary_size) {
  return vocabulary_size > 65536 ? DType::uint32 : DType::uint16;
}

/// Contiguous run of a view: its tokens from `first` on are a source's tokens from `begin` on.
struct CorpusRun {
  std::int64_t source, begin, first;
};

/// A corpus or a view in an HDF5 file; io/README.md describes the format. The file is memory-mapped: opening it takes
/// one pass over the offsets, and all processes of a machine share its pages. The sources of a view are opened with it.
class CorpusStore final : public prepare::CorpusSource {
 public:
  /// Checks everything except the tokens, which are read on demand. Throws IoError if the file cannot be opened. Throws
  /// DataError if it is not a complete corpus, or a source of a view has changed.
  explicit CorpusStore(const std::string& path);

  const std::string& name() const override { return path_; }
  const data::CorpusInfo& info() const override { return info_; }
  std::span<const std::int64_t> document_offsets() const override { return offsets_; }
  std::span<const std::int64_t> sentence_offsets() const override { return sentences_; }
  std::optional<std::span<const data::LearnedRange>> learned_ranges() const override { return learned_; }
  /// Throws DataError if there are no such tokens: a file overwritten since may hold wrong offsets.
  data::TokenSpan tokens(std::int64_t first, std::int64_t count) const override;
  void check_unchanged() const override;

  bool is_view() const { return !sources_.empty(); }
  /// The corpora that a view takes its tokens from.
  const std::vector<std::unique_ptr<CorpusStore>>& sources() const { return sources_; }
  std::vector<const data::TokenStore*> token_owners() const override;

  /// Reads every token, or for a view those of its sources, with all threads of `pool` on all ranks of `comm`. Requires
  /// the same corpus on all ranks. Throws DataError on all ranks, naming the first block that has changed since it was
  /// written, or an id outside the vocabulary.
  void verify(Communicator& comm, ThreadPool& pool) const;
  /// Reads and checks every token on one rank and one thread.
  void verify() const;
  /// Number of blocks of 1,048,576 tokens; for a view, of all its sources.
  std::int64_t blocks() const;
  /// Reads one block and returns its largest id. Throws DataError if it has changed since it was written.
  std::int64_t verify_block(std::int64_t block) const override;
  /// Releases the block's memory.
  void release_block(std::int64_t block) const override;

  Stretch stretch_at(std::int64_t token) const override;

 private:
  enum class Kind { any, no_view };
  CorpusStore(const std::string& path, Kind kind);
  void read(Kind kind);
  std::int64_t verify_blocks(std::int64_t begin, std::int64_t end, ThreadPool& pool) const;
  void verify_header(std::int64_t max_id) const;
  struct SourceName {
    std::string content_digest;
    std::string path;
  };
  /// Throws DataError if digests, offsets and ids contradict each other. A view has `sources`, and is_view() is not
  /// set yet.
  void check_tables(bool is_view, const std::vector<SourceName>& sources, std::int64_t token_count) const;
  void open_sources(const std::vector<SourceName>& names);
  const CorpusStore& source_of_block(std::int64_t& block) const;
  void check_runs() const;
  struct FoundRun {
    CorpusRun run;
    std::int64_t end;  // token of the view
  };
  FoundRun run_of(std::int64_t token) const;
  void check_tokens(std::int64_t first, std::int64_t count) const;
  std::int64_t run_end(std::size_t run) const;

  std::string path_;
  data::CorpusInfo info_;
  std::string block_digests_;
  std::unique_ptr<MappedFile> mapping_;
  std::span<const std::int64_t> offsets_;
  std::span<const std::int64_t> sentences_;
  std::optional<std::span<const data::LearnedRange>> learned_;
  data::TokenSpan tokens_;
  std::vector<std::unique_ptr<CorpusStore>> sources_;
  std::vector<std::int64_t> first_blocks_;  // first block of each source
  std::span<const CorpusRun> runs_;
};

/// Reads tokens of a corpus. Checks each block first, only once if tokens are read in order.
class VerifiedTokens {
 public:
  explicit VerifiedTokens(const prepare::CorpusSource& store) : store_(store) {}

  /// Passes tokens [begin, end) to `take`, span by span. Throws DataError if they are damaged.
  template <class Take>
  void read(std::int64_t begin, std::int64_t end, const Take& take) {
    while (begin < end) {
      const prepare::CorpusSource::Stretch stretch = store_.stretch_at(begin);
      if (stretch.block != verified_) {
        if (verified_ >= 0) store_.release_block(verified_);
        store_.verify_block(verified_ = stretch.block);
      }
      const std::int64_t size = std::min(stretch.size, end - begin);
      std::visit(take, store_.tokens(begin, size));
      begin += size;
    }
  }

 private:
  const prepare::CorpusSource& store_;
  std::int64_t verified_ = -1;
};

}  // namespace trireme::io
