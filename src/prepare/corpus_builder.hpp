#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/prepare/tokenize_input.hpp"

namespace trireme::prepare {

struct CorpusBuildOptions {
  std::vector<std::string> inputs;
  std::string output;
  CorpusTextOptions text;
  std::int64_t part_bytes = std::int64_t{32} << 20;  ///< input bytes per part
};

struct CorpusBuildReport {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t sentences = 0;  ///< 0 if the text was not split
  CorpusTextCounts counts;
  double join_s = 0;  ///< time to join the parts, after the last one
};

/// Tokenizes text into a corpus, on all ranks of `comm`; rank 0 gets the report. The ranks divide the ranges of the
/// input (`cut_input`) and make a part of each. They copy their parts into one file, each as soon as the earlier ones
/// are made, which rank 0 completes. The corpus is bitwise independent of ranks and threads, and memory is constant.
/// Empty documents are skipped and counted. `progress` is called on rank 0, at the start and periodically.
///
/// Finished parts are kept in a folder, OUTPUT.parts, until the corpus is complete. The next build of the same output
/// resumes a killed or failed one: parts of unchanged files, made with the same options, are reused. The folder is
/// locked against concurrent builds.
///
/// On failure all ranks throw, and no new output file exists. DataError: the input is not readable as text, has too
/// many bad lines, or yields nothing to write. ConfigError: the output is one of the inputs. EnvironmentError: another
/// build of the same output is running. Also IoError and Hdf5Error.
CorpusBuildReport build_corpus(const Files& files, const CorpusBuildOptions& options, const data::Tokenizer& tokenizer,
                               ThreadPool& pool, Communicator& comm, const ByteProgress& progress);

}  // namespace trireme::prepare
