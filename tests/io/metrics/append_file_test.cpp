#include "io/metrics/append_file.hpp"

#include <gmock/gmock.h>

#include "src/base/error.hpp"
#include "tests/support/file_size_limit.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class AppendFileTest : public testing::Test {
 protected:
  std::string content() const { return test::content_of(path_); }
  const test::TemporaryDirectory directory_;
  const std::string path_ = directory_ / "records";
};

TEST_F(AppendFileTest, HoldsNoPartOfARecordThatCouldNotBeWritten) {
  AppendFile file("<records>", path_);
  file.append("one\n");
  {
    const test::FileSizeLimit limit(10);
    EXPECT_THAT([&] { file.append("a record that begins and then meets the limit\n"); },
                ThrowsMessage<IoError>(HasSubstr("cannot be written: File too large")));
  }
  EXPECT_EQ(content(), "one\n");
  file.append("two\n");
  EXPECT_EQ(content(), "one\ntwo\n");
}

}  // namespace
}  // namespace trireme::io
