#pragma once

#include <memory>
#include <string>

#include "src/prepare/corpora.hpp"

namespace trireme::io {

/// Starts a corpus of documents from others, and locks it against other jobs. A copy checks each block of tokens before
/// it copies them. A view stores no tokens and refers to those of the other corpora (format: io/README.md); its offsets
/// and runs are held in memory.
std::unique_ptr<prepare::CorpusSink> create_sink(prepare::CorpusKind kind, const std::string& path,
                                                 const data::CorpusInfo& info);

}  // namespace trireme::io
