#include "io/json/json_question.hpp"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "io/json/json_text.hpp"
#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/shortened.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;

/// Formats a value for a message. Lists and objects are only named: they may nest deeper than the stack allows.
std::string shown(const json& value) {
  return value.is_structured() ? fmt::format("an {}", value.type_name()) : shortened(value.dump());
}

/// Returns the value under the first of `keys` in the object, and this key.
std::pair<std::string, const json*> value_of(const json& object, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (const auto found = object.find(key); found != object.end()) return {key, &*found};
  }
  throw DataError("the object has no key '{}'", fmt::join(keys, "' or '"));
}

std::string text_of(const std::string& key, const json& value) {
  TRIREME_CHECK(value.is_string(), DataError, "the value of '{}' is {}, not a string", key, shown(value));
  return value.get<std::string>();
}

std::int64_t answer_of(const std::string& key, const json& value) {
  if (value.is_number_integer()) return value.get<std::int64_t>();
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (text.size() == 1 && text[0] >= 'A' && text[0] <= 'Z') return text[0] - 'A';
  const auto number = parse_number<std::int64_t>(text);
  TRIREME_CHECK(number, DataError, "the value of '{}' is {}: neither the number of a choice nor its letter", key,
                shown(value));
  return *number;
}

data::ChoiceQuestion question_of(const json& object, const QuestionKeys& keys) {
  data::ChoiceQuestion question;
  if (!keys.parts.empty() && object.contains(keys.parts.front())) {
    for (const std::string& key : keys.parts) question.parts.push_back(text_of(key, *value_of(object, {key}).second));
  } else {
    const auto [context_key, context] = value_of(object, keys.context);
    question.context = text_of(context_key, *context);
  }
  const auto [choices_key, choices] = value_of(object, keys.choices);
  TRIREME_CHECK(choices->is_array(), DataError, "the value of '{}' is {}, not a list", choices_key, shown(*choices));
  for (const json& choice : *choices) question.choices.push_back(text_of(choices_key, choice));
  const auto [answer_key, answer] = value_of(object, keys.answer);
  question.answer = answer_of(answer_key, *answer);
  if (const auto subject = object.find("subject"); subject != object.end()) {
    question.subject = text_of("subject", *subject);
  }
  return question;
}

}  // namespace

data::ChoiceQuestion json_question(std::string_view line, const QuestionKeys& keys, const std::string& where) {
  try {
    const json object = json::parse(line);
    TRIREME_CHECK(object.is_object(), DataError, "the line is {}, not an object", shown(object));
    return question_of(object, keys);
  } catch (const json::parse_error& error) {
    throw DataError("{}:{}: not JSON: {}", where, error.byte, json_fault(error.what()));
  } catch (const DataError& error) {
    throw DataError("{}: {}", where, error.what());
  }
}

}  // namespace trireme::io
