#include "src/data/template/learned_text.hpp"

#include <algorithm>
#include <utility>

#include "src/base/check.hpp"

namespace trireme::data::jinja {
namespace {

constexpr std::string_view ascii_space = " \t\n\v\f\r";
constexpr const char* remedy =
    "put {% generation %} and {% endgeneration %} around the assistant's words in the template";

std::string rendered(const Template& chat, Entries variables, Values messages, bool prompts, const Limits& limits) {
  set_entry(variables, Value::text("messages"), Value::list(std::move(messages)));
  set_entry(variables, Value::text("add_generation_prompt"), Value::boolean(prompts));
  return chat.render(Value::mapping(std::move(variables)), limits).text;
}

bool is_of_assistant(const Value& message) {
  const Mapping* members = message.if_mapping();
  const Value* role = members ? members->find(Value::text("role")) : nullptr;
  return role && role->if_text() && *role->if_text() == "assistant";
}

/// Returns the end of a part [begin, end) without the white space after a special token.
std::size_t end_of_turn(std::string_view text, std::size_t begin, std::size_t end,
                        const EndsWithToken& ends_with_token) {
  const std::string_view part = text.substr(0, end);
  const std::size_t trimmed = std::max(part.find_last_not_of(ascii_space) + 1, begin);
  return ends_with_token(text.substr(begin, trimmed - begin)) ? trimmed : end;
}

/// Sorts parts and joins those that overlap.
void put_in_order(std::vector<std::pair<std::size_t, std::size_t>>& parts) {
  std::erase_if(parts, [](const auto& part) { return part.first == part.second; });
  std::ranges::sort(parts);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (kept > 0 && parts[i].first < parts[kept - 1].second) {
      parts[kept - 1].second = std::max(parts[kept - 1].second, parts[i].second);
    } else {
      parts[kept++] = parts[i];
    }
  }
  parts.resize(kept);
}

}  // namespace

Rendering render_learned(const Template& chat, Entries variables, const EndsWithToken& ends_with_token,
                         const Limits& limits) {
  set_entry(variables, Value::text("add_generation_prompt"), Value::boolean(false));
  const Value all = Value::mapping(variables);
  Rendering result = chat.render(all, limits);
  if (!chat.marks_generation()) {
    const Value* found = all.if_mapping()->find(Value::text("messages"));
    TRIREME_CHECK(found && found->if_sequence(), DataError, "\"messages\" is not a list");
    const Values& messages = found->if_sequence()->values;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (!is_of_assistant(messages[i])) continue;
      const auto end = messages.begin() + static_cast<std::ptrdiff_t>(i);
      const std::string before = rendered(chat, variables, {messages.begin(), end}, true, limits);
      const std::string after = rendered(chat, variables, {messages.begin(), end + 1}, false, limits);
      TRIREME_CHECK(after.starts_with(before), DataError,
                    "{}: the text up to message {}, the assistant's, does not begin with the prompt for it; {}",
                    chat.name(), i + 1, remedy);
      TRIREME_CHECK(result.text.starts_with(after), DataError,
                    "{}: the text of the conversation does not begin with that of its first {} messages; {}",
                    chat.name(), i + 1, remedy);
      result.generated.emplace_back(before.size(),
                                    end_of_turn(result.text, before.size(), after.size(), ends_with_token));
    }
  }
  put_in_order(result.generated);
  TRIREME_CHECK(!result.generated.empty(), DataError,
                "the conversation has no words of an assistant, which are learned");
  return result;
}

}  // namespace trireme::data::jinja
