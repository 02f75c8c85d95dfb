#include "src/data/template/template.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "io/json/chat_json.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::data::jinja {
namespace {

using testing::HasSubstr;

const Value* member(const Value& object, const char* name) { return object.if_mapping()->find(Value::text(name)); }

std::string render(const std::string& source) { return Template("t", source).render(Value::mapping({})).text; }
std::string error_of(const std::string& source) {
  return test::message_of<DataError>([&] { render(source); });
}

TEST(ChatTemplate, WritesTheTextOfJinja2) {
  std::ifstream file(TRIREME_FIXTURES "/chat/cases.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const Value variables = *member(io::parse_value(line, "cases"), "variables");
  int texts = 0, errors = 0;
  while (std::getline(file, line)) {
    const Value record = io::parse_value(line, "cases");
    const std::string source = *member(record, "template")->if_text();
    const Value* text = member(record, "text");
    if (text == nullptr) {
      ++errors;
      EXPECT_THROW(Template("t", source).render(variables), DataError) << source;
      continue;
    }
    ++texts;
    const Rendering rendering = Template("t", source).render(variables);
    EXPECT_EQ(rendering.text, *text->if_text()) << source;
    Values generated;
    for (const auto& [begin, end] : rendering.generated) {
      generated.push_back(Value::text(rendering.text.substr(begin, end - begin)));
    }
    const Value* expected = member(record, "generated");
    EXPECT_TRUE(expected ? equal(Value::list(generated), *expected) : generated.empty()) << source;
  }
  EXPECT_GT(texts, 45);
  EXPECT_GT(errors, 25);
}

TEST(ChatTemplate, RefusesByNameAndLine) {
  EXPECT_THAT(error_of("a\n{% block x %}{% endblock %}"), HasSubstr("t, line 2: the tag 'block' is not supported"));
  EXPECT_THAT(error_of("{% with a = 1 %}"), HasSubstr("the tag 'with' is not supported"));
  EXPECT_THAT(error_of("\n\n{{ 1 | wordwrap }}"), HasSubstr("line 3: the filter 'wordwrap' is not supported"));
  EXPECT_THAT(error_of("{{ 1 is filter }}"), HasSubstr("the test 'filter' is not supported"));
  EXPECT_THAT(error_of("\n{{ 'a'.zfill(3) }}"), HasSubstr("line 2: the method 'zfill' of a text is not supported"));
  EXPECT_THAT(error_of("{{ caller() }}"), HasSubstr("the variable 'caller' is not supported"));
  EXPECT_THAT(error_of("{{ raise_exception('no') }}"), HasSubstr("the template refuses the conversation: no"));
  EXPECT_THAT(error_of("{{ x.y }}"), HasSubstr("'x' is undefined"));
  EXPECT_THAT(error_of("\xff"), HasSubstr("not UTF-8"));
}

TEST(ChatTemplate, EndsHostileTemplates) {
  const auto nested = [](int count, const std::string& text) {
    std::string result;
    for (int i = 0; i < count; ++i) result += text;
    return result;
  };
  EXPECT_THAT(error_of("{{ " + nested(100000, "(") + "1" + nested(100000, ")") + " }}"),
              HasSubstr("levels of nesting"));
  EXPECT_THAT(error_of("{{ 1" + nested(100000, "+1") + " }}"), HasSubstr("levels"));
  EXPECT_THAT(error_of(nested(100000, "{% if true %}")), HasSubstr("levels of nesting"));
  EXPECT_THAT(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("more than 600 levels"));
  EXPECT_THAT(error_of("{{ 'a' * 1000000000 }}"), HasSubstr("bytes"));
  const std::string loop = "{% set n = namespace(x='aaaaaaaaaa') %}{% for i in range(100) %}";
  EXPECT_THAT(error_of(loop + "{% set n.x = n.x ~ n.x %}{% endfor %}"), HasSubstr("bytes"));
  EXPECT_THAT(error_of(loop + "{% set n.x = [n.x, n.x] %}{% endfor %}"), HasSubstr("bytes"));
  EXPECT_THAT(error_of("{% set n = namespace(x=1) %}{% for i in range(300) %}{% set n.x = [n.x] %}{% endfor %}"),
              HasSubstr("deeper than 200 levels"));
  const Template endless("t", "{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}");
  EXPECT_THAT(test::message_of<DataError>([&] { endless.render(Value::mapping({}), {.steps = 10000}); }),
              HasSubstr("more than 10000 steps"));
}

TEST(Chat, IsAListOrAnObject) {
  const io::Chat chat = io::parse_chat_prompt(
      R"({"messages": [{"role": "user", "z": 1, "a": 2}], "tools": [], "chat_template_kwargs": {"k": 1}, "id": "x"})",
      "f");
  EXPECT_EQ(to_json(Value::mapping(chat.variables), {}),
            R"({"messages": [{"role": "user", "z": 1, "a": 2}], "tools": [], "documents": null, "k": 1})");
  EXPECT_EQ(chat.id, "\"x\"");
  EXPECT_EQ(io::parse_chat(R"([{"role": "user"}])", "f").variables.size(), 3);
  // Nulls, as in exported tables, and members that nothing reads.
  const io::Chat line = io::parse_chat(
      R"({"messages": null, "conversations": [{"from": "human", "value": "x"}], "tools": null, "id": 1.5,
          "max_new_tokens": null, "chat_template_kwargs": null, "hash": 9999999999999999999, "more": [18446744073709551616]})",
      "f");
  EXPECT_EQ(line.variables.size(), 3);
  EXPECT_EQ(line.id, "");
  for (const char* large : {"9999999999999999999", "18446744073709551616"}) {
    const std::string text = fmt::format(R"({{"messages": [{{"role": "user", "n": {}}}]}})", large);
    EXPECT_THAT(test::message_of<DataError>([&] { io::parse_chat(text, "f"); }),
                HasSubstr(fmt::format("the integer {} needs more than 64 bits", large)));
  }
  EXPECT_THAT(
      test::message_of<DataError>([&] { io::parse_chat_prompt(R"({"messages": [{"role": "a"}], "id": 1.5})", "f"); }),
      HasSubstr("\"id\" is neither"));
  EXPECT_TRUE(io::is_one_value("[1,\n2]"));
  EXPECT_FALSE(io::is_one_value("[1]\n[2]"));
  for (const char* bad : {"[]", "{}", "3", "[{}]", "[1", R"({"messages": [{"role": "a"}], "tools": 1})"}) {
    EXPECT_THAT(test::message_of<DataError>([&] { io::parse_chat(bad, "f"); }), testing::StartsWith("f:")) << bad;
  }
}

}  // namespace
}  // namespace trireme::data::jinja
