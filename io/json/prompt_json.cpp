#include "io/json/prompt_json.hpp"

#include <limits>
#include <nlohmann/json.hpp>

#include "io/json/json_text.hpp"
#include "src/base/check.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;

/// Returns a non-negative integer that fits into 32 bits.
std::int32_t count_of(const json& value, const std::string& what) {
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max());
  TRIREME_CHECK(value.is_number_unsigned() && value.get<std::uint64_t>() <= most, DataError,
                "{} is {}: it must be a whole number from 0 to {}", what, json_quotation(value), most);
  return static_cast<std::int32_t>(value.get<std::uint64_t>());
}

PromptLine prompt_of(const json& object) {
  TRIREME_CHECK(object.is_object(), DataError, "the line is {}, not an object", json_quotation(object));
  const auto find = [&](const char* key) -> const json* {
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
  };
  PromptLine line;
  const json *text = find("prompt"), *tokens = find("tokens");
  TRIREME_CHECK((text == nullptr) != (tokens == nullptr), DataError,
                "the line needs \"prompt\", a text, or \"tokens\", a list of ids; it has {}",
                text == nullptr ? "neither" : "both");
  if (text != nullptr) {
    TRIREME_CHECK(text->is_string(), DataError, "\"prompt\" is {}, not a text", json_quotation(*text));
    line.text = text->get<std::string>();
  } else {
    TRIREME_CHECK(tokens->is_array(), DataError, "\"tokens\" is {}, not a list", json_quotation(*tokens));
    for (const json& token : *tokens) {
      line.tokens.push_back(count_of(token, fmt::format("\"tokens\"[{}]", line.tokens.size())));
    }
  }
  if (const json* id = find("id")) {
    TRIREME_CHECK(id->is_string() || id->is_number_integer(), DataError,
                  "\"id\" is {}, neither a text nor a whole number", json_quotation(*id));
    line.id = id->dump();
  }
  if (const json* count = find("max_new_tokens")) line.max_new_tokens = count_of(*count, "\"max_new_tokens\"");
  return line;
}

}  // namespace

PromptLine parse_prompt(std::string_view line, const std::string& where) {
  const json object = parse_json_line(line, where);
  try {
    return prompt_of(object);
  } catch (const DataError& error) {
    throw DataError("{}: {}", where, error.what());
  }
}

std::string continuation_json(const ContinuationLabels& labels, const std::string& text,
                              const infer::Continuation& continuation) {
  constexpr const char* reasons[] = {"length", "stop", "end_of_document", "interrupted"};  // as in FinishReason
  nlohmann::ordered_json object;
  object["id"] = nlohmann::ordered_json::parse(labels.id);
  if (labels.sample) object["sample"] = *labels.sample;
  if (labels.iteration) object["iteration"] = *labels.iteration;
  object["text"] = text;
  object["tokens"] = continuation.tokens;
  object["finish_reason"] = reasons[static_cast<int>(continuation.reason)];
  if (labels.likeliest) {
    auto own = nlohmann::ordered_json::array(), likeliest = nlohmann::ordered_json::array();
    for (const std::vector<infer::TokenProbability>& of_token : continuation.log_probabilities) {
      own.push_back(of_token.front().log_probability);
      auto& list = likeliest.emplace_back(nlohmann::ordered_json::array());
      for (std::size_t i = 1; i < of_token.size(); ++i) {
        list.push_back(nlohmann::ordered_json::array({of_token[i].token, of_token[i].log_probability}));
      }
    }
    object["logprobs"] = own;
    if (*labels.likeliest > 0) object["top_logprobs"] = likeliest;
  }
  return json_dump(object);
}

}  // namespace trireme::io
