#include "src/data/template/learned_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <numeric>

#include "io/huggingface/special_tokens_json.hpp"
#include "io/huggingface/tokenizer_json.hpp"
#include "io/json/chat_json.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/tokens.hpp"

namespace trireme::data::jinja {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Value& value_in(const Value& object, const char* name) { return *object.if_mapping()->find(Value::text(name)); }

std::vector<std::int32_t> numbers(const Value& list) {
  std::vector<std::int32_t> result;
  for (const Value& value : list.if_sequence()->values) {
    result.push_back(static_cast<std::int32_t>(*value.if_integer()));
  }
  return result;
}

/// Ids of a conversation, and 1 for each that is learned.
struct Masked {
  std::vector<std::int32_t> ids, mask;
};

Masked masked(const Tokenizer& tokenizer, const std::string& source, const io::Chat& chat) {
  const SpecialTokenParser parser(tokenizer);
  Entries variables = chat.variables;
  for (const auto& [role, name] : io::named_tokens_of(tokenizer)) {
    set_entry(variables, Value::text(role), Value::text(name));
  }
  const Rendering text = render_learned(Template("t", source), variables,
                                        [&](std::string_view part) { return parser.ends_with_name(part); });
  Masked result;
  std::vector<std::size_t> places;
  for (const auto& [begin, end] : text.generated) places.insert(places.end(), {begin, end});
  const std::vector<std::size_t> counts = parser.encode(text.text, places, result.ids);
  result.mask.resize(result.ids.size());
  for (std::size_t i = 0; i < counts.size(); i += 2) {
    std::fill(result.mask.begin() + static_cast<std::ptrdiff_t>(counts[i]),
              result.mask.begin() + static_cast<std::ptrdiff_t>(counts[i + 1]), 1);
  }
  return result;
}

TEST(LearnedText, HasTheMasksOfTransformers) {
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  std::ifstream file(TRIREME_FIXTURES "/chat/masks.jsonl");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const Value record = io::parse_value(line, "masks");
    const std::string& name = *value_in(record, "tokenizer").if_text();
    auto& tokenizer = tokenizers[name];
    if (!tokenizer) tokenizer = io::read_tokenizer_json(TRIREME_FIXTURES "/tokenizers/" + name + "/tokenizer.json", "");
    const io::Chat chat = io::parse_chat(to_json(value_in(record, "chat"), {}), "masks");
    for (const char* form : {"template", "plain"}) {
      const std::string& source = *value_in(record, form).if_text();
      SCOPED_TRACE(source);
      if (form == std::string("plain") && !value_in(record, "nests")) {
        EXPECT_THAT(test::message_of<DataError>([&] { masked(*tokenizer, source, chat); }),
                    AllOf(HasSubstr("t: the text of the conversation does not begin with that of its first 2 messages"),
                          HasSubstr("put {% generation %}")));
        continue;
      }
      const Masked result = masked(*tokenizer, source, chat);
      EXPECT_EQ(result.ids, numbers(value_in(record, "ids")));
      EXPECT_EQ(result.mask, numbers(value_in(record, "mask")));
    }
  }
  EXPECT_EQ(cases, 12);
}

TEST(LearnedText, IsRefusedByNameWhereItIsNotKnown) {
  const auto tokenizer = make_byte_tokenizer();
  const auto error_of = [&](const std::string& source, const std::string& chat) {
    return test::message_of<DataError>([&] { masked(*tokenizer, source, io::parse_chat(chat, "line")); });
  };
  constexpr const char* turns = "{% for m in messages %}{{ m.content }}{% endfor %}";
  const std::string answer = R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])";
  EXPECT_THAT(error_of(turns, R"([{"role": "user", "content": "a"}])"), HasSubstr("no words of an assistant"));
  EXPECT_THAT(error_of(std::string(turns) + "{% if add_generation_prompt %}>{% endif %}", answer),
              HasSubstr("t: the text up to message 2, the assistant's, does not begin with the prompt for it; put"));
  EXPECT_THAT(error_of("{% generation %}{% endgeneration %}", answer), HasSubstr("no words of an assistant"));
  EXPECT_EQ(masked(*tokenizer, turns, io::parse_chat(answer, "line")).mask, (std::vector<std::int32_t>{0, 1}));
}

TEST(LearnedText, OfShareGptHasRoles) {
  const auto tokenizer = make_byte_tokenizer();
  const io::Chat chat = io::parse_chat(
      R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}, {"from": "tool", "value": 1}]})",
      "line");
  const Masked result = masked(*tokenizer, "{% for m in messages %}{{ m.role[0] ~ m.content }}{% endfor %}", chat);
  EXPECT_THAT(result.ids, ElementsAre('u', 'a', 'a', 'b', 't', '1'));
  EXPECT_THAT(result.mask, ElementsAre(0, 0, 1, 1, 0, 0));
  for (const char* bad :
       {R"({"conversations": 1})", R"({"conversations": [{"from": "gpt"}]})", R"({"conversations": []})"}) {
    EXPECT_THAT(test::message_of<DataError>([&] { io::parse_chat(bad, "line"); }), testing::StartsWith("line: "))
        << bad;
  }
}

TEST(SpecialTokenParser, CountsTokensThatBeginBeforeAPlace) {
  const auto tokenizer = io::read_tokenizer_json(TRIREME_FIXTURES "/tokenizers/llama3/tokenizer.json", "");
  const SpecialTokenParser parser(*tokenizer);
  const std::string text = "<|user|>the ship<|turn|> rest";
  std::vector<std::size_t> places(text.size() + 1);
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::vector<std::int32_t> ids = {7};  // those before do not count
  const std::vector<std::size_t> counts = parser.encode(text, places, ids);
  ids.erase(ids.begin());
  EXPECT_EQ(ids, tokenizer->encode_chat(text));
  std::vector<std::size_t> begins;  // first bytes of the tokens
  for (std::size_t place = 0; place < counts.size(); ++place) {
    if (place > 0 && counts[place] > counts[place - 1]) begins.push_back(place - 1);
  }
  std::vector<std::size_t> expected;
  std::size_t at = 0;
  for (const std::int32_t id : ids) {
    expected.push_back(at);
    std::string bytes;
    tokenizer->decode_continuation({&id, 1}, bytes);
    at += bytes.size();
  }
  EXPECT_EQ(at, text.size());
  EXPECT_EQ(begins, expected);
  EXPECT_EQ(counts.back(), ids.size());
}

TEST(SpecialTokenParser, RefusesPlacesAtWhichTheTextChanges) {
  BpeVocabulary vocabulary = test::vocabulary_of({});
  vocabulary.normalizer = {{}};  // NFC
  const auto tokenizer = make_huggingface_tokenizer(vocabulary);
  const SpecialTokenParser parser(*tokenizer);
  const std::string text = "xe\u0301y";
  std::vector<std::int32_t> ids;
  const std::size_t before = 1, between = 2, after = 4;
  EXPECT_THAT(parser.encode(text, std::vector{before, after}, ids), ElementsAre(1, 3));
  EXPECT_EQ(ids.size(), 4);  // the composed letter has two bytes
  EXPECT_THAT(test::message_of<DataError>([&] { parser.encode(text, std::vector{between}, ids); }),
              HasSubstr("changes the text between 'xe' and the words after it"));
}

}  // namespace
}  // namespace trireme::data::jinja
