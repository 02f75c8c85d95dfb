#include "src/app/job/chat_templates.hpp"

#include <fmt/ranges.h>

#include <ranges>

#include "io/huggingface/special_tokens_json.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/data/template/learned_text.hpp"

namespace trireme::app {
namespace {

constexpr std::int64_t max_template_bytes = std::int64_t{16} << 20;

}  // namespace

ChatTemplates::ChatTemplates(const data::Tokenizer& tokenizer, const std::string& choice)
    : tokenizer_(tokenizer), parser_(tokenizer), named_tokens_(io::named_tokens_of(tokenizer)) {
  const std::map<std::string, std::string> texts = io::chat_templates_of(tokenizer.special());
  const std::string names = fmt::format("{}", fmt::join(std::views::keys(texts), ", "));
  const auto add_own = [&](const std::string& role, const std::string& name) {
    add(role, fmt::format("the chat template '{}'", name), texts.at(name));
  };
  if (texts.contains(choice)) {
    add_own("default", choice);
  } else if (!choice.empty()) {
    TRIREME_CHECK(io::is_there(choice), ConfigError,
                  "--chat-template {} is neither a file nor a template of the tokenizer, {}", choice,
                  texts.empty() ? "which has none" : "which has " + names);
    add("default", choice, io::read_whole_file(choice, max_template_bytes, io::Symlinks::follow));
  } else {
    for (const char* name : {"default", "tool_use"}) {
      if (texts.contains(name)) add_own(name, name);
    }
    TRIREME_CHECK(!texts.empty(), ConfigError,
                  "--chat: the tokenizer has no chat template: give a file of one by --chat-template");
    TRIREME_CHECK(templates_.contains("default"), ConfigError,
                  "--chat: none of the tokenizer's chat templates is the default: choose one by --chat-template: {}",
                  names);
  }
  for (const auto& [role, name] : named_tokens_) digest_ += fmt::format("{} {}\n", role, name);
  digest_ = trireme::digest(digest_.data(), digest_.size());
}

void ChatTemplates::add(const std::string& role, const std::string& name, const std::string& text) {
  templates_.emplace(role, data::jinja::Template(name, text));
  if (role == "default") default_text_ = text;
  digest_ += fmt::format("{} {}\n{}\n", role, text.size(), text);
}

template <class Render>
auto ChatTemplates::rendered(const io::Chat& chat, const std::string& where, const Render& render) const {
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
    return render(found->second, std::move(variables));
  } catch (const DataError& error) {
    throw DataError("{}: {}", where, error.what());
  }
}

std::vector<std::int32_t> ChatTemplates::prompt(const io::Chat& chat, const std::string& where) const {
  using namespace data::jinja;
  return rendered(chat, where, [&](const Template& text, Entries variables) {
    return tokenizer_.encode_chat(text.render(Value::mapping(std::move(variables))).text);
  });
}

data::jinja::Rendering ChatTemplates::learned(const io::Chat& chat, const std::string& where) const {
  using namespace data::jinja;
  return rendered(chat, where, [&](const Template& text, Entries variables) {
    return render_learned(text, std::move(variables),
                          [&](std::string_view part) { return parser_.ends_with_name(part); });
  });
}

}  // namespace trireme::app
