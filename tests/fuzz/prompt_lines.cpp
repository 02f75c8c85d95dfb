// Lines of `generate --prompts` and of its --output, which --resume reads again. The first line of the input is the
// prompt, the rest its continuation.
#include "io/json/json_text.hpp"
#include "io/json/prompt_json.hpp"
#include "src/base/error.hpp"
#include "src/base/utf8.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace trireme;

/// Returns a continuation with these bytes as tokens, and log-probabilities if their number is even.
infer::Continuation continuation_of(std::string_view text) {
  infer::Continuation continuation;
  continuation.reason = static_cast<infer::FinishReason>(text.size() % 3);
  for (const char byte : text) {
    const std::int32_t token = static_cast<unsigned char>(byte);
    continuation.tokens.push_back(token);
    if (text.size() % 2 == 0) continuation.log_probabilities.push_back({{token, -0.1 * token}, {0, -1e-9}});
  }
  return continuation;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text = fuzz::text_of(data, size);
  fuzz::require(is_utf8(io::json_value(text, "id")), "the id of any line is UTF-8");
  const std::string_view line = fuzz::take_until(text, "\n");
  io::PromptLine prompt;
  try {
    prompt = io::parse_prompt(line, "file:1");
  } catch (const DataError& error) {
    const std::string_view message = error.what();
    fuzz::require(message.starts_with("file:1:"), "an error begins with the place of its line");
    fuzz::require(message.size() < 1000, "an error does not repeat a long line");
    return 0;
  }
  fuzz::require(prompt.text.has_value() ? prompt.tokens.empty() && is_utf8(*prompt.text) : true,
                "a prompt is a text in UTF-8 or tokens");
  for (const std::int32_t token : prompt.tokens) fuzz::require(token >= 0, "tokens are ids");
  fuzz::require(prompt.max_new_tokens.value_or(0) >= 0, "a number of tokens is not negative");

  const std::string id = prompt.id.empty() ? "1" : prompt.id;
  const std::string record = io::continuation_json({.id = id}, std::string(text), continuation_of(text));
  fuzz::require(is_utf8(record) && record.find('\n') == record.npos, "a result is one line in UTF-8");
  fuzz::require(io::json_value(record, "id") == id, "a result has the id of its prompt");
  const std::string back = io::json_text(record, "text", "file", 1);
  fuzz::require(is_utf8(text) ? back == text : is_utf8(back), "a result has the text, if that is UTF-8");
  return 0;
}
