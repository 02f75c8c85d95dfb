#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/data/dataset/split.hpp"
#include "src/prepare/files.hpp"

namespace trireme::prepare {

// Corpora made of others. For a copy every block is compared with its digest before its tokens are copied, so that
// damage is not passed on; memory does not grow. A view takes 8 bytes of memory per document and sentence, and 24 per
// stretch of documents that lie together. An output gets its name when it is whole; until then a lock beside it keeps
// other jobs from writing it. DataError: corpora are damaged or do not fit together. ConfigError: an output is one of
// the inputs. EnvironmentError: another job is writing the output. All functions also throw IoError and Hdf5Error.

/// Writes the documents of all inputs, one corpus after another. They must have one tokenizer.
CorpusSize merge_corpora(const Files& files, const std::vector<std::string>& inputs, const std::string& output,
                         CorpusKind kind = CorpusKind::copy);

/// Writes training, validation and test documents of a corpus to files of their own: those that `data::documents_of`
/// gives a run with this split. No file is written for an empty split.
std::array<CorpusSize, 3> split_corpus(const Files& files, const std::string& input,
                                       const std::array<double, 3>& fractions, data::SplitBy by,
                                       const std::array<std::string, 3>& outputs, CorpusKind kind = CorpusKind::copy);

/// Writes a random sample of a corpus: each document is taken with this `probability`, whatever the others, as a
/// function of `seed` and its number. The documents keep their order, and those of a smaller one are among those of a
/// larger.
CorpusSize sample_corpus(const Files& files, const std::string& input, double probability, std::uint64_t seed,
                         const std::string& output, CorpusKind kind = CorpusKind::copy);

}  // namespace trireme::prepare
