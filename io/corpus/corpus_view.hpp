#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/corpus/corpus_store.hpp"
#include "io/posix/durable_file.hpp"

namespace trireme::io {

/// Writes a view: a corpus that refers to documents in other corpora and stores no tokens (format: io/README.md).
/// Offsets and runs are held in memory.
class CorpusViewWriter final : public prepare::CorpusSink {
 public:
  explicit CorpusViewWriter(const std::string& path);

  /// Selects the corpus whose documents `append` refers to. If it is a view, the new view refers to its sources.
  void take_from(const prepare::CorpusSource& store) override;
  void append(std::int64_t begin, std::int64_t end) override;
  void end_sentence() override { sentence_offsets_.push_back(tokens_); }
  void end_document() override { document_offsets_.push_back(tokens_); }
  std::int64_t documents() const override { return std::ssize(document_offsets_) - 1; }
  prepare::CorpusSize finish() override;

 private:
  struct Source {
    std::string path;
    std::string content_digest;
    bool operator==(const Source&) const = default;
  };
  TemporaryFile file_;
  std::string folder_;
  const prepare::CorpusSource* store_ = nullptr;
  std::optional<data::CorpusInfo> info_;  // header of the first store, with the largest id of all
  bool has_sentences_ = false;
  std::vector<Source> sources_;
  std::vector<std::int64_t> source_numbers_;  // indices in `sources_` of the selected corpus' sources
  std::vector<CorpusRun> runs_;
  std::int64_t tokens_ = 0;
  std::vector<std::int64_t> document_offsets_{0};
  std::vector<std::int64_t> sentence_offsets_{0};
};

}  // namespace trireme::io
