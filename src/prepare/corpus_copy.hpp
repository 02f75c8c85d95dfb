#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/data/dataset/split.hpp"
#include "src/prepare/files.hpp"

namespace trireme::prepare {

// Corpora assembled from others. A copy verifies every block's digest before copying its tokens, so damage does not
// propagate; memory is constant. A view takes 8 bytes of memory per document and sentence, and 24 per contiguous run of
// documents. An output is renamed into place once complete; until then a lock beside it excludes other jobs. DataError:
// corpora are damaged or incompatible. ConfigError: an output is one of the inputs. EnvironmentError: another job is
// writing the output. All functions also throw IoError and Hdf5Error.

/// Concatenates the documents of all inputs, which must share one tokenizer.
CorpusSize merge_corpora(const Files& files, const std::vector<std::string>& inputs, const std::string& output,
                         CorpusKind kind = CorpusKind::copy);

/// Writes training, validation and test documents of a corpus to separate files, divided as `data::documents_of` does
/// for a run with this split. Empty splits get no file.
std::array<CorpusSize, 3> split_corpus(const Files& files, const std::string& input,
                                       const std::array<double, 3>& fractions, data::SplitBy by,
                                       const std::array<std::string, 3>& outputs, CorpusKind kind = CorpusKind::copy);

/// Writes a random sample of a corpus: each document is taken independently with this `probability`, as a function of
/// `seed` and its number. Documents keep their order, and a smaller sample is a subset of a larger one.
CorpusSize sample_corpus(const Files& files, const std::string& input, double probability, std::uint64_t seed,
                         const std::string& output, CorpusKind kind = CorpusKind::copy);

}  // namespace trireme::prepare
