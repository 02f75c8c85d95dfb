#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::app {

/// Tests of a subcommand that run it inside the test program, with files in a folder of their own.
class CommandTest : public ::testing::Test {
 protected:
  /// Command under test: takes the words after the subcommand, returns the exit code.
  virtual int command(const std::vector<std::string>& arguments) = 0;

  /// Runs the command; the exit code is that of an error where one is thrown.
  int run(const std::vector<std::string>& arguments) {
    ::testing::internal::CaptureStdout();
    message_.clear();
    int code = 0;
    try {
      code = command(arguments);
    } catch (const Error& error) {
      message_ = error.what();
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

  test::TemporaryDirectory directory_;
  std::string output_;   ///< what the last run printed
  std::string message_;  ///< of the error it threw
};

}  // namespace trireme::app
