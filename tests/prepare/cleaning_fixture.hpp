#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "io/corpus/prepare_files.hpp"
#include "src/prepare/corpus_cleaner.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::prepare {

/// A folder that all ranks share.
class SharedFolder : public testing::Test {
 protected:
  SharedFolder() {
    if (comm_.rank() == 0) directory_.emplace();
    folder_ = broadcast_text(comm_, directory_ ? directory_->path() : "", 0);
  }
  void TearDown() override { comm_.barrier(); }

  /// Writes a file when no rank reads an earlier one any more, and returns its path.
  std::string write(const std::string& name, const std::string& bytes) {
    comm_.barrier();
    if (comm_.rank() == 0) std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    comm_.barrier();
    return folder_ + "/" + name;
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
};

/// Cleans files in the folder, on all ranks.
class CorpusCleaner : public SharedFolder {
 protected:
  CorpusCleaner() {
    options_.output = folder_ + "/out.jsonl";
    options_.report = folder_ + "/report.jsonl";
  }

  void input(const std::string& name, const std::string& bytes) { options_.inputs.push_back(write(name, bytes)); }

  CorpusCleanReport clean() {
    return clean_corpus(io::prepare_files(), options_, comm_, pool_, [](std::int64_t, std::int64_t) {});
  }
  std::string refusal() {
    return test::message_of([&] { clean(); });
  }

  CorpusCleanOptions options_;
};

}  // namespace trireme::prepare
