#include "src/app/commands/generate/typed_chat.hpp"

#include "src/app/job/prompt_tokens.hpp"
#include "src/base/check.hpp"

namespace trireme::app {

TypedChat::TypedChat(const ChatTemplates& prompts, const model::ModelConfig& model, const std::string& system)
    : prompts_(prompts), model_(model) {
  if (!system.empty()) add("system", system);
  first_ = messages_.size();
}

void TypedChat::add(const char* role, const std::string& text) {
  using data::jinja::Value;
  messages_.push_back(
      Value::mapping({{Value::text("role"), Value::text(role)}, {Value::text("content"), Value::text(text)}}));
}

std::vector<std::int32_t> TypedChat::ask(const std::string& text) {
  const std::size_t before = messages_.size();
  try {
    add("user", text);
    std::vector<std::int32_t> tokens = prompts_.prompt(io::chat_of(messages_), "this message");
    TRIREME_CHECK(std::ssize(tokens) < model_.max_positions, DataError,
                  "the conversation has {} tokens, but the model has {} positions: shorten the message, or begin "
                  "another conversation with /new",
                  tokens.size(), model_.max_positions);
    check_prompt(tokens, model_, "this message");
    return tokens;
  } catch (const DataError&) {
    messages_.resize(before);
    throw;
  }
}

}  // namespace trireme::app
