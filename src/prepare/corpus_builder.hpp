#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/prepare/tokenize_input.hpp"

namespace trireme::prepare {

struct CorpusBuildOptions {
  std::vector<std::string> inputs;
  std::string output;
  CorpusTextOptions text;
  std::int64_t part_bytes = std::int64_t{32} << 20;  ///< bytes of the input for a part
};

struct CorpusBuildReport {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t sentences = 0;  ///< 0 where the text was not split
  CorpusTextCounts counts;
  double join_s = 0;  ///< time in which one rank joined the parts
};

/// Takes the bytes of the input that are done, and all bytes of it.
using CorpusProgress = std::function<void(std::int64_t, std::int64_t)>;

/// Tokenizes text into a corpus, on all ranks of `comm`; rank 0 gets the report. The ranks divide the ranges of the
/// input (`cut_input`) and make a part of each; rank 0 joins the parts into one file. The corpus' bytes depend neither
/// on ranks nor on threads, and memory does not grow with the input. Documents without a byte are left out and counted.
/// `progress` is called on rank 0, at the start and now and then.
///
/// Finished parts stand in a folder, OUTPUT.parts, until the corpus is whole. A build that was killed or failed is
/// continued by the next of the same output: parts of unchanged files, made with the same options, are not made again.
/// The folder is locked against a second build at once.
///
/// On failure all ranks throw, and no new file stands under the name of the output. DataError: the input cannot be read
/// as text, has too many bad lines, or gives nothing to write. ConfigError: the output is one of the inputs.
/// EnvironmentError: another build of the same output is running. Also IoError and Hdf5Error.
CorpusBuildReport build_corpus(const Files& files, const CorpusBuildOptions& options, const data::Tokenizer& tokenizer,
                               ThreadPool& pool, Communicator& comm, const CorpusProgress& progress);

}  // namespace trireme::prepare
