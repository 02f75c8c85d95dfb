#include "src/app/megatron/translation.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "src/app/megatron/reasons.hpp"
#include "src/app/options/terminal_text.hpp"
#include "src/base/log.hpp"

namespace trireme::app::megatron {
namespace {

bool is_flag(const std::string& word) { return word.size() > 2 && word.starts_with("--"); }

std::string hyphenated(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Returns whether `text` is a whole number with underscores between its digits.
bool is_grouped_number(const std::string& text) {
  return text.find('_') != std::string::npos && is_digit(text.front()) && is_digit(text.back()) &&
         std::ranges::all_of(text, [](char c) { return c == '_' || is_digit(c); });
}

/// Returns a value without the quotes around it, and a number without underscores.
std::string cleaned(std::string value, bool is_path) {
  const bool quoted = value.size() > 1 && value.front() == value.back() && (value[0] == '\'' || value[0] == '"');
  if (quoted) value = value.substr(1, value.size() - 2);
  if (!is_path && is_grouped_number(value)) std::erase(value, '_');
  return value;
}

/// Number of words behind the flag at `i` that are its values.
std::size_t count_values(const std::vector<std::string>& arguments, std::size_t i, Values values) {
  const std::size_t most = values == Values::none ? 0 : values == Values::list ? arguments.size() : 1;
  std::size_t count = 0;
  while (count < most && i + 1 + count < arguments.size() && !arguments[i + 1 + count].starts_with("--")) ++count;
  return count;
}

/// Returns the words of a row: its text with `values` for @, or the flag itself.
std::vector<std::string> words_of(const std::string& name, std::string_view text,
                                  const std::vector<std::string>& values) {
  std::istringstream stream(text.empty() ? fmt::format("--{} @", name) : std::string(text));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    if (word == "@") {
      words.insert(words.end(), values.begin(), values.end());
    } else {
      words.push_back(word);
    }
  }
  return words;
}

/// Translates the flags of one command line.
class Translator {
 public:
  Translator(const std::vector<std::string>& arguments, const Options& options)
      : arguments_(arguments), options_(options) {}

  Translation run() {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (arguments_[i] == "--") {
        append({arguments_.begin() + static_cast<std::ptrdiff_t>(i), arguments_.end()});
        break;
      }
      if (is_flag(arguments_[i])) {
        i += take(i);
      } else {
        append({arguments_[i]});
      }
    }
    return std::move(result_);
  }

 private:
  void append(const std::vector<std::string>& words) {
    result_.arguments.insert(result_.arguments.end(), words.begin(), words.end());
  }

  /// Translates the flag at `i`, and returns the number of values behind it.
  std::size_t take(std::size_t i) {
    const std::string& word = arguments_[i];
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string written = word.substr(2, equals - 2);
    const std::string name = hyphenated(written);
    const std::string own = options_.spelling(name);
    const Flag* row = find_flag(name);
    Verdict verdict{.flag = word, .row = row, .words = {}, .reason = {}};
    const bool has_inline_value = equals < word.size();
    if (row == nullptr || (has_inline_value && row->values == Values::none && row->kind != Kind::absent)) {
      verdict.words = {own.empty() ? word : "--" + own + word.substr(equals)};
      append(verdict.words);
      result_.verdicts.push_back(std::move(verdict));
      return 0;
    }
    std::vector<std::string> values;
    const std::size_t count = has_inline_value ? 0 : count_values(arguments_, i, row->values);
    if (has_inline_value) values.push_back(word.substr(equals + 1));
    for (std::size_t k = 1; k <= count; ++k) {
      values.push_back(arguments_[i + k]);
      verdict.flag += ' ' + arguments_[i + k];
    }
    for (std::string& value : values) value = cleaned(value, !own.empty() && options_.takes_path(own));
    if (values.size() == 1) verdict.row = find_flag(name, values.front());
    if (const Flag* beside = flag_beside(name)) verdict.row = beside;
    judge(name, own, values, verdict);
    append(verdict.words);
    result_.verdicts.push_back(std::move(verdict));
    return count;
  }

  /// Sets the kind of a flag with its words or reason.
  void judge(const std::string& name, const std::string& own, const std::vector<std::string>& values,
             Verdict& verdict) const {
    const bool is_of_value = verdict.row->name != name;
    verdict.kind = verdict.row->kind;
    if (!own.empty() && !is_of_value) {
      if (verdict.kind != Kind::writes) verdict.kind = Kind::works;
      verdict.words = words_of(own, "", values);
    } else if (verdict.kind == Kind::satisfied || verdict.kind == Kind::absent) {
      verdict.reason = verdict.row->text;
    } else {
      take_words(words_of(name, verdict.row->text, values), verdict);
    }
  }

  /// Gives a flag its words, where they are options of this command.
  void take_words(std::vector<std::string> words, Verdict& verdict) const {
    for (std::string& word : words) {
      if (!is_flag(word)) continue;
      const std::string own = options_.spelling(hyphenated(word.substr(2)));
      if (own.empty()) {
        verdict.kind = Kind::absent;
        verdict.reason = why::not_yet;
        return;
      }
      word = "--" + own;
    }
    verdict.words = std::move(words);
  }

  /// Returns the row of `name` beside another flag of this line; null where none has its condition met.
  const Flag* flag_beside(const std::string& name) const {
    const Flag* found = nullptr;
    for_each_flag([&](const Flag& flag) {
      if (flag.name.starts_with(name + " --") && holds(std::string(flag.name.substr(name.size() + 1)))) found = &flag;
    });
    return found;
  }

  /// Returns whether the line has these words one after another.
  bool holds(const std::string& condition) const {
    std::istringstream stream(condition);
    const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
    return !std::ranges::search(arguments_, words, {}, hyphenated).empty();
  }

  const std::vector<std::string>& arguments_;
  const Options& options_;
  Translation result_;
};

}  // namespace

std::string Translation::refusal() const {
  std::string text;
  for (const Verdict& verdict : verdicts) {
    if (verdict.kind != Kind::absent) continue;
    const std::string line = fmt::format("\n  {}: {}", shortened(verdict.flag), verdict.reason);
    if (text.find(line) == std::string::npos) text += line;
  }
  return text.empty() ? "" : "flags of Megatron-LM that are absent here; leave them out:" + text;
}

void Translation::log() const {
  std::vector<std::string> renamed, satisfied;
  for (const Verdict& verdict : verdicts) {
    const std::string words = fmt::format("{}", fmt::join(verdict.words, " "));
    std::string flag = hyphenated(verdict.flag);
    std::ranges::replace(flag, '=', ' ');
    const bool is_other = verdict.row != nullptr && !verdict.words.empty() && flag != hyphenated(words);
    if (verdict.kind == Kind::satisfied) satisfied.push_back(verdict.flag);
    if (is_other) renamed.push_back(fmt::format("{} is {}", verdict.flag, words));
  }
  if (!renamed.empty()) log::info("flags of Megatron-LM by another name: {}", fmt::join(renamed, ", "));
  if (!satisfied.empty()) {
    log::info("flags of Megatron-LM that are satisfied already: {}", fmt::join(satisfied, ", "));
  }
}

Translation translate(const std::vector<std::string>& arguments, const Options& options) {
  return Translator(arguments, options).run();
}

std::optional<Translation> read(const CommandLine& line, Options& options) {
  Translation translation = translate(line.arguments(), options);
  std::vector<std::string> problems;
  if (std::string refusal = translation.refusal(); !refusal.empty()) problems.push_back(std::move(refusal));
  if (!line.read(options, translation.arguments, std::move(problems))) return {};
  return translation;
}

}  // namespace trireme::app::megatron
