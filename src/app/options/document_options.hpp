#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mpi/environment.hpp"
#include "src/app/options/options.hpp"
#include "src/base/thread_pool.hpp"
#include "src/prepare/text_reader.hpp"

namespace trireme::app {

/// Format of the input files.
struct DocumentFormat {
  prepare::TextFormat format = prepare::TextFormat::by_name;
  bool text_lines = false;  ///< each line of text is a document
  bool operator==(const DocumentFormat&) const = default;
};

/// Adds an option NAME that takes one of these formats.
void add_document_format(Options& options, const std::string& name, DocumentFormat* format, const std::string& help);

/// Adds --on-bad-line and --max-bad-lines.
void add_bad_lines(Options& options, bool* skip, std::int64_t* max_lines);

/// Returns the threads of a rank: `workers`, or its share of the machine's cores. Collective.
int thread_count(const mpi::MpiCommunicator& world, std::optional<int> workers);

}  // namespace trireme::app
