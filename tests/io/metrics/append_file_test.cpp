#include "io/metrics/append_file.hpp"

#include <gmock/gmock.h>

#include "src/base/error.hpp"
#include "tests/support/file_size_limit.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(AppendFile, RemovesARecordThatWasWrittenInPart) {
  const test::TemporaryDirectory directory;
  const std::string path = directory / "records";
  AppendFile file("<records>", path);
  file.append("one\n");
  {
    const test::FileSizeLimit limit(10);
    EXPECT_THAT([&] { file.append("a record that begins and then meets the limit\n"); },
                ThrowsMessage<IoError>(HasSubstr("cannot be written: File too large")));
  }
  EXPECT_EQ(test::content_of(path), "one\n");
  file.append("two\n");
  EXPECT_EQ(test::content_of(path), "one\ntwo\n");
}

}  // namespace
}  // namespace trireme::io
