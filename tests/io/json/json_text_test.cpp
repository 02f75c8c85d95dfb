#include "io/json/json_text.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/json/task_json.hpp"
#include "src/base/text.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::io {
namespace {

/// Lists within lists: a serializer that recurses would overflow the stack.
std::string nested_lists() { return std::string(1000000, '[') + std::string(1000000, ']'); }

TEST(JsonText, AValueIsTakenFromALine) {
  const std::string line = R"({"a": {"id": 1}, "id": [1, -2, {"b": null, "c\n": [true, {}]}, []], "z": "id"})";
  EXPECT_EQ(json_value(line, "id"), R"([1,-2,{"b":null,"c\n":[true,{}]},[]])");
  EXPECT_EQ(json_value(line, "a"), R"({"id":1})");
  EXPECT_EQ(json_value(line, "z"), "\"id\"");
  EXPECT_EQ(json_value(R"({"id": "\u00e9\u0000", "id": 18446744073709551615})", "id"), "18446744073709551615");
  EXPECT_EQ(json_value(R"({"id": "a\u00e9\u0000\"/"})", "id"), "\"a\u00e9\\u0000\\\"/\"");
  EXPECT_EQ(json_value(R"({"id": 1.50e3})", "id"), "1.50e3");
}

TEST(JsonText, ALineWithoutTheKeyHasTheValueNull) {
  for (const char* line : {"", "{", "[]", "[{\"id\": 1}]", "1", "{\"a\": {\"id\": 1}}", "{\"id\": 1", "{\"id\": 1}, 2",
                           "{\"id\": \"\xff\"}"}) {
    EXPECT_EQ(json_value(line, "id"), "null") << line;
  }
}

TEST(JsonText, ReplacingTheTextKeepsOtherMembers) {
  const std::string line = R"({"z": [1.50, 2], "text": "old", "a": {"text": "inner", "n": 123456789012345678901}})";
  EXPECT_EQ(with_json_text(line, "text", "n\"ew\n"),
            R"({"z":[1.50,2],"text":"n\"ew\n","a":{"text":"inner","n":123456789012345678901}})");
  EXPECT_EQ(with_json_text(R"({"text": "old"})", "text", ""), R"({"text":""})");
  EXPECT_THROW(with_json_text(R"({"a": 1})", "text", ""), DataError);
  EXPECT_THROW(with_json_text(R"({"text": "old")", "text", ""), DataError);
}

TEST(JsonText, ReplacesBytesThatAreNotUtf8AsOtherTextsDo) {
  constexpr std::string_view bytes = "a\x80\xbf\xc1\xc3\xe0\xa0\xed\x9f\xf0\x90\xf4\x8f\xff";
  for (std::size_t i = 0; i < bytes.size() * bytes.size() * bytes.size(); ++i) {
    const std::string text{bytes[i % bytes.size()], bytes[i / bytes.size() % bytes.size()],
                           bytes[i / bytes.size() / bytes.size()]};
    ASSERT_EQ(nlohmann::json::parse(json_dump(nlohmann::json(text))).get<std::string>(), as_utf8(text)) << i;
  }
}

TEST(JsonText, LinesMayNestDeeperThanTheStack) {
  const std::string lists = nested_lists();
  const std::string line = "{\"id\":" + lists + ",\"text\":\"old\",\"more\":" + lists + "}";
  EXPECT_EQ(json_value(line, "id"), lists);
  EXPECT_EQ(with_json_text(line, "text", "new"), "{\"id\":" + lists + ",\"text\":\"new\",\"more\":" + lists + "}");
}

TEST(JsonText, MessagesAboutTasksDoNotRepeatDeepLists) {
  data::BadLines bad(false);
  EXPECT_EQ(
      test::message_of<DataError>([&] { parse_squad("{\"data\": {\"a\": " + nested_lists() + "}}", "s.json", bad); }),
      "s.json: \"data\" is an object instead of an array");
}

}  // namespace
}  // namespace trireme::io
