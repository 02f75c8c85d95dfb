#include "src/app/commands/generate/chat_prompts.hpp"

#include <fmt/ranges.h>

#include <ranges>

#include "io/huggingface/special_tokens_json.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"

namespace trireme::app {
namespace {

constexpr std::int64_t max_template_bytes = std::int64_t{16} << 20;

}  // namespace

ChatPrompts::ChatPrompts(const data::Tokenizer& tokenizer, const std::string& choice)
    : tokenizer_(tokenizer), named_tokens_(io::named_tokens_of(tokenizer)) {
  const std::map<std::string, std::string> texts = io::chat_templates_of(tokenizer.special());
  const std::string names = fmt::format("{}", fmt::join(std::views::keys(texts), ", "));
  const auto add = [&](const std::string& role, const std::string& name) {
    templates_.emplace(role, data::jinja::Template(fmt::format("the chat template '{}'", name), texts.at(name)));
  };
  if (texts.contains(choice)) {
    add("default", choice);
  } else if (!choice.empty()) {
    TRIREME_CHECK(io::is_there(choice), ConfigError,
                  "--chat-template {} is neither a file nor a template of the model, {}", choice,
                  texts.empty() ? "which has none" : "which has " + names);
    templates_.emplace("default", data::jinja::Template(
                                      choice, io::read_whole_file(choice, max_template_bytes, io::Symlinks::follow)));
  } else {
    for (const char* name : {"default", "tool_use"}) {
      if (texts.contains(name)) add(name, name);
    }
    TRIREME_CHECK(!texts.empty(), ConfigError,
                  "--chat: the model has no chat template: give a file of one by --chat-template");
    TRIREME_CHECK(templates_.contains("default"), ConfigError,
                  "--chat: none of the model's chat templates is the default: choose one by --chat-template: {}",
                  names);
  }
}

std::vector<std::int32_t> ChatPrompts::tokens(const io::Chat& chat, const std::string& where) const {
  using data::jinja::Value;
  data::jinja::Entries variables;
  for (const auto& [role, name] : named_tokens_) variables.emplace_back(Value::text(role), Value::text(name));
  set_entry(variables, Value::text("add_generation_prompt"), Value::boolean(true));
  bool has_tools = false;
  for (const auto& [name, value] : chat.variables) {
    set_entry(variables, name, value);
    has_tools = has_tools || (*name.if_text() == "tools" && !value.is_none());
  }
  const auto found =
      has_tools && templates_.contains("tool_use") ? templates_.find("tool_use") : templates_.find("default");
  try {
    return tokenizer_.encode_chat(found->second.render(Value::mapping(std::move(variables))).text);
  } catch (const DataError& error) {
    throw DataError("{}: {}", where, error.what());
  }
}

}  // namespace trireme::app
