#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "io/corpus/prepare_files.hpp"
#include "src/base/error.hpp"
#include "src/prepare/corpus_cleaner.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::prepare {

/// A folder that all ranks see, and the cleaning of files in it by all ranks.
class CorpusCleaner : public testing::Test {
 protected:
  void SetUp() override {
    if (comm_.rank() == 0) directory_.emplace();
    folder_ = broadcast_text(comm_, directory_ ? directory_->path() : "", 0);
    options_.output = folder_ + "/out.jsonl";
    options_.report = folder_ + "/report.jsonl";
    options_.min_tokens = 0;
  }
  void TearDown() override { comm_.barrier(); }

  void write(const std::string& name, const std::string& bytes) {
    if (comm_.rank() == 0) std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    comm_.barrier();
    options_.inputs.push_back(folder_ + "/" + name);
  }

  CorpusCleanReport clean(const data::Tokenizer* tokenizer = nullptr) {
    return clean_corpus(io::prepare_files(), options_, tokenizer, comm_, pool_, [](std::int64_t, std::int64_t) {});
  }

  std::string refusal(const data::Tokenizer* tokenizer = nullptr) {
    try {
      clean(tokenizer);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  static std::vector<std::string> lines(const std::string& path) {
    std::vector<std::string> result;
    std::ifstream file(path, std::ios::binary);
    for (std::string line; std::getline(file, line);) result.push_back(line);
    return result;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) result.push_back(entry.path().filename());
    return result;
  }

  Communicator& comm_ = test::world();
  ThreadPool pool_{1};
  std::optional<test::TemporaryDirectory> directory_;
  std::string folder_;
  CorpusCleanOptions options_;
};

}  // namespace trireme::prepare
