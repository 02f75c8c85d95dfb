#include "io/json/chat_json.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "io/json/json_text.hpp"
#include "src/base/check.hpp"

namespace trireme::io {
namespace {

using data::jinja::Entries;
using data::jinja::Value;
using data::jinja::Values;
using nlohmann::json;

constexpr std::size_t max_depth = 100;

/// Builds the values of templates from JSON, members in their order.
class ValueBuilder : public nlohmann::json_sax<json> {
 public:
  /// Takes numbers without regard to their size under names of the outermost object that `ignores` accepts.
  explicit ValueBuilder(std::string where, bool (*ignores)(std::string_view name) = nullptr)
      : where_(std::move(where)), ignores_(ignores) {}

  Value take() { return std::move(result_); }

  bool null() override { return add(Value()); }
  bool boolean(bool value) override { return add(Value::boolean(value)); }
  bool number_integer(std::int64_t value) override { return add(Value::integer(value)); }
  bool number_unsigned(std::uint64_t value) override {
    if (value > INT64_MAX) return large_integer(static_cast<double>(value), std::to_string(value));
    return add(Value::integer(static_cast<std::int64_t>(value)));
  }
  bool number_float(double value, const std::string& text) override {
    if (text.find_first_of(".eE") == text.npos) return large_integer(value, text);
    return add(Value::number(value));
  }
  bool string(std::string& text) override { return add(Value::text(std::move(text))); }
  bool binary(json::binary_t&) override { return false; }  // JSON has none
  bool start_object(std::size_t) override { return start(true); }
  bool start_array(std::size_t) override { return start(false); }
  bool key(std::string& name) override {
    levels_.back().key = std::move(name);
    return true;
  }
  bool end_object() override {
    Entries entries = std::move(levels_.back().entries);
    levels_.pop_back();
    return add(Value::mapping(std::move(entries)));
  }
  bool end_array() override {
    Values values = std::move(levels_.back().values);
    levels_.pop_back();
    return add(Value::list(std::move(values)));
  }
  bool parse_error(std::size_t byte, const std::string&, const json::exception& error) override {
    throw DataError("{}:{}: not JSON: {}", where_, byte, json_fault(error.what()));
  }

 private:
  bool large_integer(double value, const std::string& text) {
    const bool is_ignored =
        ignores_ != nullptr && !levels_.empty() && levels_.front().is_object && ignores_(levels_.front().key);
    TRIREME_CHECK(is_ignored, DataError, "{}: the integer {} needs more than 64 bits with its sign", where_, text);
    return add(Value::number(value));
  }

  struct Level {
    bool is_object = false;
    std::string key;
    Entries entries;
    Values values;
  };

  bool start(bool is_object) {
    TRIREME_CHECK(levels_.size() < max_depth, DataError, "{}: nests deeper than {} levels", where_, max_depth);
    levels_.emplace_back().is_object = is_object;
    return true;
  }
  bool add(Value value) {
    if (levels_.empty()) {
      result_ = std::move(value);
    } else if (Level& level = levels_.back(); level.is_object) {
      set_entry(level.entries, Value::text(std::move(level.key)), std::move(value));
    } else {
      level.values.push_back(std::move(value));
    }
    return true;
  }

  std::string where_;
  bool (*ignores_)(std::string_view name);
  std::vector<Level> levels_;
  Value result_;
};

/// Returns messages in the form of ShareGPT, {"from": "human", "value": "..."}, with roles. Other senders keep their
/// names.
Value messages_of_conversations(const Value& conversations) {
  const auto* list = conversations.if_sequence();
  TRIREME_CHECK(list != nullptr, DataError, "\"conversations\" is no list");
  Values messages;
  for (const Value& turn : list->values) {
    const auto* members = turn.if_mapping();
    const Value* from = members ? members->find(Value::text("from")) : nullptr;
    const Value* value = members ? members->find(Value::text("value")) : nullptr;
    TRIREME_CHECK(from && from->if_text() && value, DataError,
                  "turn {} of \"conversations\" is no object with \"from\" and \"value\"",
                  &turn - list->values.data() + 1);
    const std::string& sender = *from->if_text();
    const char* const role = sender == "human" ? "user" : sender == "gpt" ? "assistant" : sender.c_str();
    messages.push_back(Value::mapping({{Value::text("role"), Value::text(role)}, {Value::text("content"), *value}}));
  }
  return Value::list(std::move(messages));
}

void check_messages(const Value& messages) {
  const auto* list = messages.if_sequence();
  TRIREME_CHECK(list != nullptr && !list->values.empty(), DataError,
                "a conversation needs at least one message, in a list or in the list \"messages\" of an object");
  for (const Value& message : list->values) {
    const auto* members = message.if_mapping();
    TRIREME_CHECK(members && members->find(Value::text("role")), DataError, "message {} is no object with a \"role\"",
                  &message - list->values.data() + 1);
  }
}

}  // namespace

Value parse_value(std::string_view text, const std::string& where) {
  ValueBuilder builder(where);
  json::sax_parse(text, &builder);
  return builder.take();
}

Chat chat_of(Values messages) {
  Chat chat;
  chat.variables.emplace_back(Value::text("messages"), Value::list(std::move(messages)));
  for (const char* name : {"tools", "documents"}) chat.variables.emplace_back(Value::text(name), Value());
  return chat;
}

namespace {

bool is_no_chat_member(std::string_view name) {
  constexpr std::string_view members[] = {"messages", "conversations", "tools", "documents", "chat_template_kwargs"};
  return std::ranges::find(members, name) == std::end(members);
}

Chat parse_members(std::string_view text, const std::string& where, bool is_prompt) {
  ValueBuilder builder(where, is_no_chat_member);
  json::sax_parse(text, &builder);
  const Value chat = builder.take();
  Chat result;
  try {
    const auto* object = chat.if_mapping();
    const auto find = [&](const char* name) {
      const Value* found = object ? object->find(Value::text(name)) : nullptr;
      return found && !found->is_none() ? found : nullptr;
    };
    const Value messages = object == nullptr       ? chat
                           : find("messages")      ? *find("messages")
                           : find("conversations") ? messages_of_conversations(*find("conversations"))
                                                   : Value();
    check_messages(messages);
    result = chat_of(messages.if_sequence()->values);
    for (const char* name : {"tools", "documents"}) {
      const Value* found = find(name);
      TRIREME_CHECK(found == nullptr || found->if_sequence(), DataError, "\"{}\" is no list", name);
      if (found) set_entry(result.variables, Value::text(name), *found);
    }
    if (const Value* others = find("chat_template_kwargs")) {
      TRIREME_CHECK(others->if_mapping(), DataError, "\"chat_template_kwargs\" is no object");
      for (const auto& [name, value] : others->if_mapping()->entries) set_entry(result.variables, name, value);
    }
    if (!is_prompt) return result;
    if (const Value* id = find("id")) {
      TRIREME_CHECK(id->if_text() || id->get<std::int64_t>(), DataError, "\"id\" is neither a text nor a whole number");
      result.id = data::jinja::to_json(*id, {});
    }
    if (const Value* count = find("max_new_tokens")) {
      const auto* number = count->get<std::int64_t>();
      TRIREME_CHECK(number && *number >= 0 && *number <= INT32_MAX, DataError,
                    "\"max_new_tokens\" is no whole number from 0 to {}", INT32_MAX);
      result.max_new_tokens = *number;
    }
  } catch (const DataError& error) {
    throw DataError("{}: {}", where, error.what());
  }
  return result;
}

}  // namespace

Chat parse_chat(std::string_view text, const std::string& where) { return parse_members(text, where, false); }
Chat parse_chat_prompt(std::string_view text, const std::string& where) { return parse_members(text, where, true); }

std::string text_of_chat(const Chat& chat) {
  std::string result;
  const auto append = [&](const std::string& text) {
    if (!result.empty() && !text.empty()) result += "\n\n";
    result += text;
  };
  for (const Value& message : chat.variables.front().second.if_sequence()->values) {
    const auto find = [&](const char* name) { return message.if_mapping()->find(Value::text(name)); };
    if (const Value* content = find("content")) {
      if (content->if_text()) append(*content->if_text());
      const auto* parts = content->if_sequence();
      for (const Value& part : parts ? parts->values : Values()) {
        const auto* members = part.if_mapping();
        const Value* text = members ? members->find(Value::text("text")) : nullptr;
        if (text && text->if_text()) append(*text->if_text());
      }
    }
    if (const Value* calls = find("tool_calls"); calls && !calls->is_none()) append(data::jinja::to_json(*calls, {}));
  }
  return result;
}

bool is_one_value(std::string_view text) { return json::accept(text); }

}  // namespace trireme::io
