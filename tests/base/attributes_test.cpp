#include "src/base/attributes.hpp"

#include <gmock/gmock.h>

#include <cstdint>
#include <limits>

namespace trireme {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

enum class Colour { red, blue };
constexpr Choice<Colour> colours[] = {{"red", Colour::red}, {"blue", Colour::blue}};

TEST(Attributes, ReturnTheStoredValues) {
  Attributes attributes;
  attributes.put("text", "a text");
  attributes.put("yes", true);
  attributes.put("int", -7);
  attributes.put("min", std::numeric_limits<std::int64_t>::min());
  attributes.put("max", std::numeric_limits<std::int64_t>::max());
  attributes.put("third", 1.0 / 3);
  attributes.put_shortest("tenth", 0.1);
  attributes.put("colour", Colour::blue, colours);
  const Attributes read(attributes.texts());
  EXPECT_EQ(read, attributes);
  EXPECT_EQ(read.get<std::string>("text"), "a text");
  EXPECT_TRUE(read.get<bool>("yes"));
  EXPECT_EQ(read.get<int>("int"), -7);
  EXPECT_EQ(read.get("int", -7), -7);
  EXPECT_EQ(read.get<std::int64_t>("min"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(read.get<std::int64_t>("max"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(read.get<double>("third"), 1.0 / 3);
  EXPECT_EQ(read.get<double>("tenth"), 0.1);
  EXPECT_EQ(read.texts().at("tenth"), "0.1");
  EXPECT_EQ(read.get("colour", colours), Colour::blue);
}

TEST(Attributes, RefuseWrongValuesBySourceNameAndValue) {
  const auto refuses = [](const auto& get, const char* expected, std::initializer_list<const char*> values) {
    Attributes attributes;
    attributes.set_source("a/manifest.json");
    EXPECT_THAT([&] { get(attributes); },
                ThrowsMessage<CheckpointError>(
                    AllOf(HasSubstr("a/manifest.json: the attribute x is missing"), HasSubstr(expected))));
    for (const char* value : values) {
      attributes.put("x", value);
      EXPECT_THAT([&] { get(attributes); },
                  ThrowsMessage<CheckpointError>(HasSubstr(
                      fmt::format("a/manifest.json: the attribute x is '{}' instead of {}. Try ", value, expected))));
    }
  };
  refuses([](const Attributes& a) { a.get<std::string>("x"); }, "a text", {});
  refuses([](const Attributes& a) { a.get<bool>("x"); }, "true or false", {"", "True", "1", "true "});
  refuses([](const Attributes& a) { a.get<int>("x"); }, "a whole number", {"", "a", " 1", "1 ", "1.5", "2147483648"});
  refuses([](const Attributes& a) { a.get<std::int64_t>("x"); }, "a whole number", {"9223372036854775808", "1e3"});
  refuses([](const Attributes& a) { a.get<double>("x"); }, "a finite number", {"", "nan", "-inf", "1e999", "0.5x"});
  refuses([](const Attributes& a) { a.get("x", 3); }, "a whole number of at least 3", {"2", "-4", "x"});
  refuses([](const Attributes& a) { a.get("x", 0.5); }, "a finite number of at least 0.5", {"0.25", "nan"});
  refuses([](const Attributes& a) { a.get("x", colours); }, "one of red, blue", {"", "green", "Red"});
  refuses([](const Attributes& a) { a.require(false, "x", "nothing"); }, "nothing", {"1"});
}

TEST(Attributes, AreMergedWithoutReplacingAny) {
  Attributes attributes = {{"a", "1"}, {"b", "2"}};
  attributes.merge({{"b", "3"}, {"c", "4"}});
  EXPECT_EQ(attributes, (Attributes{{"a", "1"}, {"b", "2"}, {"c", "4"}}));
  EXPECT_TRUE(Attributes({{"model.a", ""}}).contains_prefix("model."));
  EXPECT_FALSE(Attributes({{"model", ""}, {"modelling", ""}}).contains_prefix("model."));
}

}  // namespace
}  // namespace trireme
