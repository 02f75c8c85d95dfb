#include "src/app/megatron/shell_variables.hpp"

#include <algorithm>
#include <cctype>

#include "src/app/megatron/open_parts.hpp"
#include "src/app/megatron/shell_arithmetic.hpp"
#include "src/app/megatron/shell_lexer.hpp"
#include "src/base/check.hpp"

namespace trireme::app::megatron {
namespace {

constexpr std::string_view spaces = " \t\n";

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Returns the length of the name that `text` begins with: letters, digits and _, or one of @ * # ? $ !.
std::size_t name_length(std::string_view text) {
  std::size_t length = 0;
  if (!text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) != 0) return 1;
  while (length < text.size() && in_name(text[length])) ++length;
  if (length == 0 && !text.empty() && std::string_view("@*#?$!").find(text[0]) != std::string_view::npos) return 1;
  return length;
}

}  // namespace

bool ShellVariables::assign(std::string_view word) {
  std::size_t end = 0;
  while (end < word.size() && in_name(word[end])) ++end;
  const std::string name(word.substr(0, end));
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) return false;
  if (end < word.size() && word[end] == '[') end = std::min(word.find(']', end), word.size() - 1) + 1;
  const bool appends = word.substr(end).starts_with("+=");
  if (!appends && !word.substr(end).starts_with("=")) return false;
  const std::string_view value = word.substr(end + (appends ? 2 : 1));
  std::vector<std::string> before;
  if (const auto found = values_.find(name); appends && found != values_.end()) before = found->second;
  if (value.starts_with("(") && value.ends_with(")")) {
    for (const ShellToken& token : shell_tokens(value.substr(1, value.size() - 2))) {
      if (token.type != ShellToken::Type::word) continue;
      for (std::string& field : fields(token.text)) before.push_back(std::move(field));
    }
    set(name, std::move(before));
  } else {
    set(name, {(before.empty() ? "" : before.front()) + text(value)});
  }
  return true;
}

void ShellVariables::set(const std::string& name, std::vector<std::string> values) {
  std::size_t size = 0;
  for (const std::string& value : values) size += value.size() + 1;
  TRIREME_CHECK(size < (1 << 20), ConfigError, "the variable {} of the script has more than a million characters",
                name);
  values_[name] = std::move(values);
}

std::optional<std::string> ShellVariables::value(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end() || found->second.empty()) return {};
  return written(found->second.front());
}

std::vector<std::string> ShellVariables::fields(std::string_view word) {
  Result result;
  result.splits = true;
  expand(word, false, result, 0);
  return std::move(result.fields);
}

std::string ShellVariables::text(std::string_view word) {
  Result result;
  expand(word, false, result, 0);
  std::string text;
  for (const std::string& field : result.fields) text += (text.empty() ? "" : " ") + field;
  return text;
}

std::string ShellVariables::tested(std::string_view word) {
  const std::set<std::string> before = unknown_, commands_before = commands_;
  unknown_is_empty_ = true;
  std::string result = written(text(word));
  unknown_is_empty_ = false;
  unknown_ = before;
  commands_ = commands_before;
  return result;
}

void ShellVariables::add(std::string_view value, Result& result) {
  if (!result.is_open) result.fields.emplace_back();
  result.is_open = true;
  result.fields.back() += value;
  TRIREME_CHECK(result.fields.back().size() < (1 << 20), ConfigError,
                "a word of the script has more than a million characters");
}

void ShellVariables::add_value(std::string_view value, bool quoted, Result& result) {
  if (quoted || !result.splits) return add(value, result);
  bool in_open_part = false;
  for (const char c : value) {
    const bool begins = c == open_bare || c == open_quoted;
    in_open_part = begins || (in_open_part && c != open_end);
    if (!in_open_part && spaces.find(c) != spaces.npos) {
      result.is_open = false;
    } else {
      const char kept = begins ? open_bare : c;
      add({&kept, 1}, result);
    }
  }
}

void ShellVariables::add_unknown(const std::string& name, std::string_view unit, bool quoted, Result& result) {
  unknown_.insert(name);
  add_open(unit, quoted, result);
}

void ShellVariables::add_command(std::string_view unit, bool quoted, Result& result) {
  commands_.emplace(unit);
  add_open(unit, quoted, result);
}

/// Adds an open part. One in an assignment counts as quoted until its variable is used without quotes.
void ShellVariables::add_open(std::string_view unit, bool quoted, Result& result) const {
  if (unknown_is_empty_) return;
  add({quoted || !result.splits ? &open_quoted : &open_bare, 1}, result);
  add(unit, result);
  add({&open_end, 1}, result);
}

void ShellVariables::add_variable(const std::string& name, std::string_view unit, bool quoted, Result& result) {
  if (name == "@" || name == "*" || name == "#" || name == "?" || name == "!" || name == "$") return;
  const auto found = values_.find(name);
  if (found == values_.end()) return add_unknown(name, unit, quoted, result);
  if (!found->second.empty()) add_value(found->second.front(), quoted, result);
}

void ShellVariables::expand(std::string_view raw, bool quoted, Result& result, int depth) {
  TRIREME_CHECK(depth < 100, ConfigError, "the script has more than 100 variables in one another");
  for (std::size_t i = 0; i < raw.size();) {
    const char c = raw[i];
    const std::size_t end = c == '\'' && quoted ? i + 1 : behind_shell_unit(raw, i);
    if (i == 0 && !quoted && (raw == "~" || raw.starts_with("~/"))) {
      add_variable("HOME", "$HOME", true, result);
      i = 1;
      continue;
    }
    if (c == '$') {
      i = expand_dollar(raw, i, quoted, result, depth);
      continue;
    }
    if (c == '\'' && !quoted) {
      add(raw.substr(i + 1, end - i - 2), result);
    } else if (c == '"' && end > i + 1) {
      add("", result);  // a field, even where nothing is in it
      const std::string_view inner = raw.substr(i + 1, end - i - 2);
      const bool is_all = inner.starts_with("${") && inner.ends_with("[@]}");
      if (is_all && result.fields.back().empty()) {
        result.fields.pop_back();
        result.is_open = false;
      }
      expand(inner, true, result, depth + 1);
    } else if (c == '\\' && end == i + 2) {
      const bool stays = quoted && std::string_view("$`\"\\\n").find(raw[i + 1]) == std::string_view::npos;
      if (raw[i + 1] != '\n') add(raw.substr(stays ? i : i + 1, stays ? 2 : 1), result);
    } else if (c == '`') {
      add_command(raw.substr(i, end - i), quoted, result);
    } else {
      add(raw.substr(i, end - i), result);
    }
    i = end;
  }
}

std::size_t ShellVariables::expand_dollar(std::string_view raw, std::size_t i, bool quoted, Result& result, int depth) {
  const std::size_t end = behind_shell_unit(raw, i);
  const std::string_view unit = raw.substr(i, end - i);
  if (unit.starts_with("$((") && unit.ends_with("))")) {
    const auto value_of = [&](const std::string& name) { return value(name); };
    const std::optional<std::int64_t> sum = shell_sum(unit.substr(3, unit.size() - 5), value_of);
    if (sum) {
      add(std::to_string(*sum), result);
    } else {
      add_unknown(std::string(unit), unit, quoted, result);
    }
  } else if (unit.starts_with("$(")) {
    add_command(unit, quoted, result);
  } else if (unit.starts_with("${")) {
    expand_braces(unit.substr(2, unit.size() - 3), quoted, result, depth);
  } else {
    const std::size_t length = name_length(raw.substr(i + 1));
    if (length == 0) {
      add("$", result);
    } else {
      add_variable(std::string(raw.substr(i + 1, length)), raw.substr(i, length + 1), quoted, result);
    }
    return i + 1 + length;
  }
  return end;
}

void ShellVariables::expand_braces(std::string_view inner, bool quoted, Result& result, int depth) {
  const std::string unit = "${" + std::string(inner) + "}";
  const bool counts = inner.starts_with("#") && inner.size() > 1;
  if (counts) inner.remove_prefix(1);
  const std::string name(inner.substr(0, name_length(inner)));
  std::string_view rest = inner.substr(name.size());
  const auto found = values_.find(name);
  const bool is_set = found != values_.end();
  const bool has_value = is_set && !found->second.empty() && !found->second.front().empty();
  if (rest == "[@]" || rest == "[*]") {
    if (!is_set) return add_unknown(name, unit, quoted, result);
    if (counts) return add(std::to_string(found->second.size()), result);
    for (std::size_t k = 0; k < found->second.size(); ++k) {
      if (k > 0) result.is_open = false;
      add_value(found->second[k], quoted, result);
    }
    return;
  }
  if (rest.size() > 2 && rest.find_first_not_of("0123456789", 1) == rest.size() - 1 && rest.ends_with("]") && is_set) {
    const std::size_t index = rest.size() > 8 ? found->second.size() : std::stoul(std::string(rest.substr(1)));
    if (index < found->second.size()) add_value(found->second[index], quoted, result);
    return;
  }
  if (counts || name.empty()) return add_unknown(unit, unit, quoted, result);
  if (rest.empty()) return add_variable(name, unit, quoted, result);
  const bool needs_value = rest.starts_with(":");
  if (needs_value) rest.remove_prefix(1);
  const bool stands = needs_value ? has_value : is_set;
  if (rest.starts_with("-") || rest.starts_with("=")) {
    const std::string fallback(rest.substr(1));
    if (stands) return add_variable(name, unit, quoted, result);
    if (rest.starts_with("=")) set(name, {text(fallback)});
    return expand(fallback, quoted, result, depth + 1);
  }
  if (rest.starts_with("+")) {
    if (stands) expand(rest.substr(1), quoted, result, depth + 1);
    return;
  }
  if (rest.starts_with("?") && stands) return add_variable(name, unit, quoted, result);
  add_unknown(name, unit, quoted, result);
}

}  // namespace trireme::app::megatron
