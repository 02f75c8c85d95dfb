#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "io/corpus_store.hpp"
#include "src/data/split.hpp"

namespace trireme::io {

/// What a corpus that was written holds.
struct CorpusSize {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
};

// Corpora made of others, in memory that does not grow with them. Every block is checked against its digest before its
// tokens are copied, so that damage is found and not handed on. An output gets its name when it is whole; while it is
// written a lock beside it keeps other jobs of these from writing it too. All throw DataError (damaged or unlike
// corpora), ConfigError (an output is one of the inputs), EnvironmentError (the output is being written by another
// job), IoError, Hdf5Error.

/// The documents of all inputs, one corpus after another. They must have one tokenizer.
CorpusSize merge_corpora(const std::vector<std::string>& inputs, const std::string& output);

/// Training, validation and test part of a corpus as files of their own: the documents that `data::documents_of` gives
/// a run with this split. No file is written for an empty part.
std::array<CorpusSize, 3> split_corpus(const std::string& input, const std::array<double, 3>& shares, data::SplitBy by,
                                       const std::array<std::string, 3>& outputs);

/// A random sample of a corpus: each document is taken with probability `share`, whatever the others, as a function of
/// `seed` and its number. The documents keep their order, and those of a smaller share are among those of a greater.
CorpusSize sample_corpus(const std::string& input, double share, std::uint64_t seed, const std::string& output);

}  // namespace trireme::io
