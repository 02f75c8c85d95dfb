#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/app/job/chat_templates.hpp"
#include "src/model/model_config.hpp"

namespace trireme::app {

/// Conversation of a user, who types messages, and a model.
class TypedChat {
 public:
  /// `system` is the text of its first message; none if empty. `prompts` and `model` must live longer.
  TypedChat(const ChatTemplates& prompts, const model::ModelConfig& model, const std::string& system);

  /// Adds a user's message. Returns the ids up to the answer, for which at least one position is left. Throws DataError
  /// if the template refuses the message or the positions do not suffice; the message is then not added.
  std::vector<std::int32_t> ask(const std::string& text);
  void answer(const std::string& text) { add("assistant", text); }
  /// Begins another conversation.
  void clear() { messages_.resize(first_); }

 private:
  void add(const char* role, const std::string& text);

  const ChatTemplates& prompts_;
  const model::ModelConfig& model_;
  data::jinja::Values messages_;
  std::size_t first_;  // messages of a new conversation
};

}  // namespace trireme::app
