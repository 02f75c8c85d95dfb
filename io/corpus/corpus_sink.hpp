#pragma once

#include <cstdint>

#include "io/corpus/corpus_store.hpp"

namespace trireme::io {

/// Size of a written corpus.
struct CorpusSize {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
};

/// A corpus that is made of documents of others. All throw IoError, DataError or Hdf5Error.
class CorpusSink {
 public:
  virtual ~CorpusSink() = default;
  /// Selects the corpus that `append` copies from. It must live until the last such call.
  virtual void take_from(const CorpusStore& store) = 0;
  /// Its tokens [begin, end).
  virtual void append(std::int64_t begin, std::int64_t end) = 0;
  virtual void end_sentence() = 0;
  virtual void end_document() = 0;
  virtual std::int64_t documents() const = 0;
  /// Gives the file its name.
  virtual CorpusSize finish() = 0;
};

}  // namespace trireme::io
