#include "io/json/settings_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"

namespace trireme::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::ThrowsMessage;

TEST(JsonSettings, JoinTheNamesOfObjects) {
  EXPECT_THAT(json_settings(R"({"zero": {"stage": 1, "offload": {"device": "none"}}, "clip": 1.0, "fp16": {},
                                "betas": [0.9, 0.95], "log": true, "rate": null})",
                            "ds.json"),
              ElementsAre(Pair("betas", "[0.9,0.95]"), Pair("clip", "1.0"), Pair("fp16", "{}"), Pair("log", "true"),
                          Pair("rate", "null"), Pair("zero.offload.device", "none"), Pair("zero.stage", "1")));
}

TEST(JsonSettings, RefuseOtherTexts) {
  EXPECT_THAT([] { json_settings("[1]", "ds.json"); },
              ThrowsMessage<DataError>(HasSubstr("ds.json: an array instead of an object")));
  EXPECT_THAT([] { json_settings("{", "ds.json"); }, ThrowsMessage<DataError>(HasSubstr("ds.json: not JSON")));
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "{\"a\":";
  EXPECT_THAT([&] { json_settings(deep + "1" + std::string(100, '}'), "ds.json"); },
              ThrowsMessage<DataError>(HasSubstr("ds.json nests deeper than 16 levels")));
}

}  // namespace
}  // namespace trireme::io
