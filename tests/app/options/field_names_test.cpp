#include "src/app/options/field_names.hpp"

#include <gtest/gtest.h>

#include "src/base/log.hpp"

namespace trireme::app {
namespace {

TEST(FieldNames, FieldsBecomeFlags) {
  EXPECT_EQ(with_flags("<seq_length> 7 must divide <tensor_model_parallel_size>"),
            "--seq-length 7 must divide --tensor-model-parallel-size");
  EXPECT_EQ(with_flags("<tp> 2 <pp> 4"), "--tp 2 --pp 4");
}

TEST(FieldNames, OtherAngleBracketsStay) {
  for (const char* text :
       {"", "<", ">", "<>", "none of <|endoftext|> and </s>", "1 < 2", "<no_field> 3", "<seq_length"}) {
    EXPECT_EQ(with_flags(text), text);
  }
  EXPECT_EQ(with_flags("<<lr>> < <lr"), "<--lr> < <lr");
}

TEST(FieldNames, LogLinesNameFlags) {
  log::set_message_filter(with_flags);
  log::initialise(0, 1);
  testing::internal::CaptureStderr();
  log::warn("<startup_timeout_minutes> waits longer than {} minutes", 5);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("--startup-timeout-minutes waits longer than 5 minutes\n"),
            std::string::npos);
  log::set_message_filter(nullptr);
}

}  // namespace
}  // namespace trireme::app
