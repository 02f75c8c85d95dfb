#pragma once

#include <string>
#include <vector>

namespace trireme::app {

// `trireme corpus merge|split|sample|import|export`: corpora made of other files. Each takes the arguments behind its
// name and returns the exit code; errors are thrown.
int corpus_merge(const std::vector<std::string>& arguments);
int corpus_split(const std::vector<std::string>& arguments);
int corpus_sample(const std::vector<std::string>& arguments);
int corpus_import(const std::vector<std::string>& arguments);
int corpus_export(const std::vector<std::string>& arguments);

}  // namespace trireme::app
