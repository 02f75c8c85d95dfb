#pragma once

#include <string>
#include <vector>

#include "src/data/tasks/task_text.hpp"
#include "src/data/tasks/zero_shot/benchmark.hpp"

namespace trireme::app {

/// Returns the files with a part of a task's data set, "train", "validation", "test" or "dev". `path` is such a file,
/// or a folder: with the folder TASK or the files TASK.*, or with the data itself. A file belongs to the part that its
/// name or its folder's contains as a word: val, valid, validation, dev and development are one part, except that
/// MMLU's dev is its own. Several files are the pieces "...-00000-of-00002..." of one, or MMLU's, one a subject. Throws
/// DataError that lists the files if none or several belong to the part.
std::vector<std::string> benchmark_files(const data::Benchmark& benchmark, const std::string& path,
                                         std::string_view part);

/// Reads the documents of files: JSON lines; `.csv`, MMLU's original files, whose names begin with the subject; `.txt`,
/// a text a line, or for WikiText `.raw`, `.tokens` and `.txt`, pages. Any may be compressed. Labels that the documents
/// lack are read from NAME-labels.lst beside NAME.jsonl. `bad_lines` collects unusable lines. Throws DataError,
/// IoError.
std::vector<data::TaskDocument> read_documents(const data::Benchmark& benchmark, const std::vector<std::string>& files,
                                               data::BadLines& bad_lines);

}  // namespace trireme::app
