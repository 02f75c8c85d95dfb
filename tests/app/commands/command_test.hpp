#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "src/app/command_table.hpp"
#include "src/app/options/field_names.hpp"
#include "src/base/error.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::app {

/// Tests of subcommands that run inside the test program, with files in a folder of their own.
class CommandTest : public ::testing::Test {
 protected:
  /// `parent` is the first word of the commands under test; empty if each names its own.
  explicit CommandTest(std::string parent) : parent_(std::move(parent)) {}

  /// Runs a subcommand; the exit code is that of an error where one is thrown.
  int run(std::vector<std::string> words) {
    if (!parent_.empty()) words.insert(words.begin(), parent_);
    ::testing::internal::CaptureStdout();
    message_.clear();
    int code = 0;
    try {
      const Call call = find_command(words);
      code = run_command(call, call.command->ranks == Ranks::many ? &test::mpi_environment() : nullptr);
    } catch (const Error& error) {
      message_ = with_flags(error.what());
      code = static_cast<int>(error.exit_code());
    }
    output_ = ::testing::internal::GetCapturedStdout();
    return code;
  }
  /// Writes a file and returns its path.
  std::string file(const std::string& name, const std::string& bytes) {
    std::ofstream(directory_ / name, std::ios::binary) << bytes;
    return directory_ / name;
  }

  std::string parent_;
  test::TemporaryDirectory directory_;
  std::string output_;   ///< output of the last run
  std::string message_;  ///< message of the error it threw, as the program prints it
};

}  // namespace trireme::app
