#include "src/app/megatron/translation.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include "src/app/manual/terminal_text.hpp"
#include "src/app/megatron/reasons.hpp"
#include "src/app/run_config/run_attributes.hpp"
#include "src/app/run_config/run_config.hpp"
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

/// Returns the number of words after the flag at `i` that are its values.
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
  Translator(const std::vector<std::string>& arguments, const Options& options, const std::string& command)
      : arguments_(arguments), options_(options), command_(command) {
    if (command_ == "train") return;
    training_.emplace("trireme train", "");
    training_reader_.emplace(*training_);
    model_.emplace("", "");
    model_options_.declare(*model_);
  }

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

  /// Translates the flag at `i`, and returns the number of its values.
  std::size_t take(std::size_t i) {
    const std::string& word = arguments_[i];
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string name = hyphenated(word.substr(2, equals - 2));
    const std::string own = options_.spelling(name);
    const bool has_inline_value = equals < word.size();
    const Flag* of_command = find_command_flag(command_, name);
    const bool takes_value = !own.empty() && options_.takes_value(own);
    if (of_command != nullptr && of_command->values == Values::none && takes_value &&
        (has_inline_value || count_values(arguments_, i, Values::one) > 0)) {
      of_command = nullptr;
    }
    const Flag* row = of_command != nullptr ? of_command : find_flag(name);
    if (!own.empty() && row != nullptr && row->name.ends_with('*')) row = nullptr;  // an option of this program
    Verdict verdict{.flag = word, .row = row, .words = {}, .reason = {}};
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
    if (of_command == nullptr) {
      if (values.size() == 1) verdict.row = find_flag(name, values.front());
      if (const Flag* beside = flag_beside(name)) verdict.row = beside;
    }
    judge(name, of_command != nullptr ? "" : own, std::move(values), verdict);
    append(verdict.words);
    result_.verdicts.push_back(std::move(verdict));
    return count;
  }

  /// Sets the kind of a flag, and its words or reason.
  void judge(const std::string& name, const std::string& own, std::vector<std::string> values, Verdict& verdict) {
    const bool is_of_value = verdict.row->name != name;
    verdict.kind = verdict.row->kind;
    if (!own.empty() && !is_of_value) {
      if (verdict.kind != Kind::writes) verdict.kind = Kind::works;
      // A list of Megatron-LM that is one value here, as "0:16 2.4B:320" without its quotes.
      if (values.size() > 1 && !options_.takes_list(own)) values = {fmt::format("{}", fmt::join(values, " "))};
      verdict.words = words_of(own, "", values);
    } else if (verdict.kind == Kind::satisfied || verdict.kind == Kind::absent) {
      verdict.reason =
          command_ == "generate" && verdict.row->text == why::inference ? why::generation : verdict.row->text;
    } else {
      take_words(words_of(name, verdict.row->text, values), verdict);
    }
  }

  /// Sets the words of a flag if they are options of this command. Those of `train` only are ignored, or checked
  /// against the checkpoint.
  void take_words(std::vector<std::string> words, Verdict& verdict) {
    if (brought_into(options_, words)) {
      verdict.words = std::move(words);
    } else if (model_ && brought_into(*model_, words)) {
      verdict.kind = Kind::satisfied;
      verdict.reason = why::held;
      result_.model_words.insert(result_.model_words.end(), words.begin(), words.end());
    } else if (training_ && brought_into(*training_, words)) {
      verdict.kind = Kind::satisfied;
      verdict.reason = why::unused;
    } else {
      verdict.kind = Kind::absent;
      verdict.reason = why::not_yet;
    }
  }

  /// Spells the options among `words` as in `options`. Returns false if one of them is unknown.
  static bool brought_into(const Options& options, std::vector<std::string>& words) {
    for (std::string& word : words) {
      if (!is_flag(word)) continue;
      const std::string own = options.spelling(hyphenated(word.substr(2)));
      if (own.empty()) return false;
      word = "--" + own;
    }
    return true;
  }

  /// Returns the row of `name` beside another flag of this line; null if none has its condition met.
  const Flag* flag_beside(const std::string& name) const {
    const Flag* found = nullptr;
    for (const Flag& flag : all_flags()) {
      if (flag.name.starts_with(name + " --") && holds(std::string(flag.name.substr(name.size() + 1)))) found = &flag;
    }
    return found;
  }

  /// Returns whether the line contains these words in sequence.
  bool holds(const std::string& condition) const {
    std::istringstream stream(condition);
    const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
    const std::string inline_words = fmt::format("{}", fmt::join(words, "="));
    return !std::ranges::search(arguments_, words, {}, hyphenated).empty() ||
           std::ranges::find(arguments_, inline_words, hyphenated) != arguments_.end();
  }

  const std::vector<std::string>& arguments_;
  const Options& options_;
  const std::string& command_;
  std::optional<Options> training_;  // options of train, for other commands
  std::optional<RunConfigReader> training_reader_;
  std::optional<Options> model_;  // those of a model
  ModelOptions model_options_;
  Translation result_;
};

using Lines = std::vector<std::pair<std::string, std::string>>;

/// Translates the lines "name = value" of a file of options. Adds verdicts to `all`, and refusals to `problems`.
Lines translated_lines(const Lines& lines, const Options& options, const std::string& command, Translation& all,
                       std::vector<std::string>& problems) {
  std::vector<std::string> words;
  Lines result;
  for (const auto& [name, value] : lines) {
    const std::string own = options.spelling(hyphenated(name));
    const Flag* row = find_flag(hyphenated(name));
    const bool is_flag = own.empty() ? row != nullptr && row->values == Values::none : !options.takes_value(own);
    if (is_flag && value == "true") {
      words.push_back("--" + name);
    } else if (is_flag || value.empty() || value.starts_with("--")) {
      if (own.empty() && value == "false") continue;
      result.emplace_back(own.empty() ? name : own, value);
    } else {
      words.insert(words.end(), {"--" + name, value});
    }
  }
  Translation translation = translate(words, options, command);
  if (std::string refusal = translation.refusal(); !refusal.empty()) problems.push_back(std::move(refusal));
  all.verdicts.insert(all.verdicts.end(), translation.verdicts.begin(), translation.verdicts.end());
  all.model_words.insert(all.model_words.end(), translation.model_words.begin(), translation.model_words.end());
  const std::vector<std::string>& there = translation.arguments;
  for (std::size_t i = 0; i < there.size(); ++i) {
    const std::string name = there[i].substr(2);
    const std::size_t first = i + 1;
    while (i + 1 < there.size() && !there[i + 1].starts_with("--")) result.emplace_back(name, there[++i]);
    if (i + 1 == first) result.emplace_back(name, "true");
  }
  return result;
}

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
  std::vector<std::string> renamed, satisfied, held, unused;
  for (const Verdict& verdict : verdicts) {
    const std::string words = fmt::format("{}", fmt::join(verdict.words, " "));
    std::string flag = hyphenated(verdict.flag);
    std::ranges::replace(flag, '=', ' ');
    const bool is_renamed = verdict.row != nullptr && !verdict.words.empty() && flag != hyphenated(words);
    if (is_renamed) renamed.push_back(fmt::format("{} is {}", verdict.flag, words));
    if (verdict.kind != Kind::satisfied) continue;
    (verdict.reason == why::held ? held : verdict.reason == why::unused ? unused : satisfied).push_back(verdict.flag);
  }
  const auto list = [](const char* which, const std::vector<std::string>& flags) {
    if (!flags.empty()) log::info("flags of Megatron-LM {}: {}", which, fmt::join(flags, ", "));
  };
  list("by another name", renamed);
  list("that are satisfied already", satisfied);
  list("that are checked against the checkpoint", held);
  list("ignored by this command", unused);
}

void Translation::check_model(const model::ModelConfig& stored) const {
  Options options("trireme train", "");
  ModelOptions model;
  model.declare(options);
  options.parse(model_words);
  model.checkpoint = stored;
  const model::ModelConfig asked = model.config(1, 1);
  require_same_model(attributes_of(stored), attributes_of(asked));
}

Translation translate(const std::vector<std::string>& arguments, const Options& options, const std::string& command) {
  return Translator(arguments, options, command).run();
}

std::optional<Translation> read(const CommandLine& line, Options& options) {
  const std::string command = line.command().substr(line.command().rfind(' ') + 1);
  Translation translation = translate(line.arguments(), options, command);
  std::vector<std::string> problems;
  if (std::string refusal = translation.refusal(); !refusal.empty()) problems.push_back(std::move(refusal));
  options.translate_files([&](const Lines& lines, std::vector<std::string>& of_file) {
    return translated_lines(lines, options, command, translation, of_file);
  });
  if (!line.read(options, translation.arguments, std::move(problems))) return {};
  return translation;
}

}  // namespace trireme::app::megatron
