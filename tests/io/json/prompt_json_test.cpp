#include "io/json/prompt_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.hpp"

namespace trireme::io {
namespace {

using testing::HasSubstr;

TEST(PromptLine, HasATextOrTokens) {
  const PromptLine text =
      parse_prompt(R"({"prompt": "the ship\n", "id": "a\u00e9", "max_new_tokens": 0, "x": []})", "f:1");
  EXPECT_EQ(text.text, "the ship\n");
  EXPECT_EQ(text.id, "\"a\u00e9\"");
  EXPECT_EQ(text.max_new_tokens, 0);
  const PromptLine tokens = parse_prompt(R"({"id": -3, "tokens": [0, 2147483647]})", "f:1");
  EXPECT_FALSE(tokens.text);
  EXPECT_THAT(tokens.tokens, testing::ElementsAre(0, 2147483647));
  EXPECT_EQ(tokens.id, "-3");
  EXPECT_FALSE(tokens.max_new_tokens);
  EXPECT_EQ(parse_prompt(R"({"prompt": ""})", "f:1").id, "");
}

void expect_line_refused(std::string_view line, const std::string& message) {
  EXPECT_THAT(test::message_of<DataError>([&] { parse_prompt(line, "f:12"); }),
              testing::AllOf(testing::StartsWith("f:12:"), HasSubstr(message)))
      << line;
}

TEST(PromptLine, HostileLinesAreRefusedWithTheirPlace) {
  expect_line_refused("{", "f:12:2: not JSON");
  expect_line_refused("{\"prompt\": \"\xff\"}", "not JSON: syntax error while parsing value");
  expect_line_refused("{\"prompt\": \"\\ud800\"}", "not JSON");
  expect_line_refused("[1]", "the line is an array, not an object");
  expect_line_refused("{}", "it has neither");
  expect_line_refused(R"({"prompt": "a", "tokens": [1]})", "it has both");
  expect_line_refused(R"({"prompt": 5})", "\"prompt\" is 5, not a text");
  expect_line_refused(R"({"tokens": "5"})", "\"tokens\" is \"5\", not a list");
  expect_line_refused(R"({"tokens": [1, -1]})", "\"tokens\"[1] is -1: it must be a whole number from 0 to 2147483647");
  expect_line_refused(R"({"tokens": [1.0]})", "\"tokens\"[0] is 1.0");
  expect_line_refused(R"({"tokens": [2147483648]})", "\"tokens\"[0] is 2147483648");
  expect_line_refused(R"({"tokens": [99999999999999999999]})", "\"tokens\"[0] is 1e+20");
  expect_line_refused(R"({"prompt": "a", "id": null})", "\"id\" is null, neither a text nor a whole number");
  expect_line_refused(R"({"prompt": "a", "id": 1.5})", "\"id\" is 1.5");
  expect_line_refused(R"({"prompt": "a", "max_new_tokens": "9"})", "\"max_new_tokens\" is \"9\"");
  expect_line_refused(std::string(100000, '['), "not JSON");
  expect_line_refused("{\"tokens\": " + std::string(100000, '[') + std::string(100000, ']') + "}",
                      "\"tokens\"[0] is an array");
}

TEST(ContinuationLine, ContainsTheLogProbabilitiesOfTheContinuation) {
  infer::Continuation continuation{{5, 6}, infer::FinishReason::stop, {}};
  EXPECT_EQ(continuation_json({.id = "7"}, "a\xff", continuation),
            "{\"id\":7,\"text\":\"a\xEF\xBF\xBD\",\"tokens\":[5,6],\"finish_reason\":\"stop\"}");
  continuation.log_probabilities = {{{5, -0.5}}, {{6, -1}}};
  EXPECT_EQ(continuation_json({.id = "\"x\"", .likeliest = 0}, "", continuation),
            R"({"id":"x","text":"","tokens":[5,6],"finish_reason":"stop","logprobs":[-0.5,-1.0]})");
  continuation.log_probabilities = {{{5, -0.5}, {5, -0.5}, {4, -2}}, {{6, -1}, {9, -0.25}, {6, -1}}};
  continuation.reason = infer::FinishReason::end_of_document;
  EXPECT_THAT(continuation_json({.id = "1", .likeliest = 2}, "", continuation),
              HasSubstr(R"("finish_reason":"end_of_document","logprobs":[-0.5,-1.0],)"
                        R"("top_logprobs":[[[5,-0.5],[4,-2.0]],[[9,-0.25],[6,-1.0]]]})"));
  EXPECT_THAT(continuation_json({.id = "1", .likeliest = 2}, "", {}),
              HasSubstr(R"("tokens":[],"finish_reason":"length","logprobs":[],"top_logprobs":[]})"));
}

}  // namespace
}  // namespace trireme::io
