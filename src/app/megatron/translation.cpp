#include "src/app/megatron/translation.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>
#include <utility>

#include "io/json/settings_json.hpp"
#include "io/posix/file.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/app/megatron/derived_flags.hpp"
#include "src/app/megatron/reasons.hpp"
#include "src/app/megatron/split_paths.hpp"
#include "src/app/run_config/run_attributes.hpp"
#include "src/app/run_config/run_config.hpp"
#include "src/base/log.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme::app::megatron {
namespace {

bool is_flag(const std::string& word) { return word.size() > 2 && word.starts_with("--"); }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Returns whether `text` is a whole number with underscores between its digits.
bool is_grouped_number(const std::string& text) {
  return text.find('_') != std::string::npos && is_digit(text.front()) && is_digit(text.back()) &&
         std::ranges::all_of(text, [](char c) { return c == '_' || is_digit(c); });
}

/// Returns a value without the quotes around it, and a number, not in a text, without underscores.
std::string cleaned(std::string value, bool is_text) {
  const bool quoted = value.size() > 1 && value.front() == value.back() && (value[0] == '\'' || value[0] == '"');
  if (quoted) value = value.substr(1, value.size() - 2);
  if (!is_text && is_grouped_number(value)) std::erase(value, '_');
  return value;
}

/// Returns the number of words after the flag at `i` that are its values.
std::size_t count_values(const std::vector<std::string>& arguments, std::size_t i, Values values) {
  const std::size_t most = values == Values::none ? 0 : values == Values::list ? arguments.size() : 1;
  std::size_t count = 0;
  while (count < most && i + 1 + count < arguments.size() && !arguments[i + 1 + count].starts_with("--")) ++count;
  return count;
}

/// Returns the split of --train-weighted-split-paths and its like: 0, 1 or 2; nothing for another flag.
std::optional<std::size_t> split_of(std::string_view name) {
  constexpr std::string_view splits[] = {"train", "valid", "test"};
  for (std::size_t i = 0; i < std::size(splits); ++i) {
    if (name.starts_with(splits[i]) && name.substr(splits[i].size()).starts_with("-weighted-split-paths")) return i;
  }
  return {};
}

std::string text_of_file(const std::string& path) {
  constexpr std::int64_t max_bytes = 1 << 20;
  return io::read_whole_file(path, max_bytes, io::Symlinks::follow);
}

bool are_equal(const std::string& a, const std::string& b) {
  const std::optional<double> x = parse_number<double>(a), y = parse_number<double>(b);
  return a == b || (x && y && *x == *y);
}

/// Returns the words of a row: its text with `values` for @, and their powers of two for 2^@; or the flag itself.
std::vector<std::string> words_of(const std::string& name, std::string_view text,
                                  const std::vector<std::string>& values) {
  std::istringstream stream(text.empty() ? fmt::format("--{} @", name) : std::string(text));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    if (word == "@") {
      words.insert(words.end(), values.begin(), values.end());
    } else if (const auto power = word == "2^@" ? parse_number<double>(values.front()) : std::nullopt) {
      words.push_back(fmt::format("{}", std::exp2(*power)));
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
    const auto end = std::ranges::find(arguments_, "--");
    const auto count = static_cast<std::size_t>(end - arguments_.begin());
    for (std::size_t i = 0; i < count; ++i) {
      if (is_flag(arguments_[i])) {
        i += take(i);
      } else {
        append({arguments_[i]});
      }
    }
    take_split_paths();
    take_settings();
    take_derived();
    append({end, arguments_.end()});
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
    const bool is_text = !own.empty() && (options_.takes_path(own) || own == "validation-set-names");
    for (std::string& value : values) value = cleaned(value, is_text);
    if (of_command == nullptr) {
      if (values.size() == 1) verdict.row = find_flag(name, values.front());
      if (const Flag* beside = flag_beside(all_flags(), name)) verdict.row = beside;
    }
    const bool names_settings = name == "deepspeed-config" || name == "deepscale-config";
    if (names_settings && !values.empty()) settings_.push_back({result_.verdicts.size(), values});
    if (name == "data-args-path" && !values.empty()) {
      take_words_of_file(values.front(), verdict, [&](const std::string& text) {
        std::istringstream stream(text);
        return words_of("", verdict.row->text, {std::istream_iterator<std::string>(stream), {}});
      });
    } else if (name == "per-split-data-args-path" && !values.empty()) {
      take_words_of_file(values.front(), verdict,
                         [&](const std::string& text) { return words_of_splits(text, values.front()); });
    } else if (split_of(name)) {
      split_paths_.push_back({result_.verdicts.size(), std::move(values)});
    } else if (is_derived(name) && verdict.row->name == name && options_.spelling("seq-length") == "seq-length") {
      derived_.push_back({result_.verdicts.size(), {name, values.empty() ? "" : values.front()}});
    } else {
      judge(name, of_command != nullptr ? "" : own, std::move(values), verdict);
    }
    append(verdict.words);
    result_.verdicts.push_back(std::move(verdict));
    return count;
  }

  /// Translates a flag whose values are in a file.
  template <class Words>
  void take_words_of_file(const std::string& path, Verdict& verdict, const Words& words_in) {
    verdict.kind = Kind::works;
    try {
      take_words(words_in(text_of_file(path)), verdict);
    } catch (const Error& error) {
      verdict.kind = Kind::absent;
      verdict.reason = error.what();
    }
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

  /// Translates the weighted split paths of all splits at once.
  void take_split_paths() {
    if (split_paths_.empty()) return;
    const auto split_of_verdict = [this](std::size_t verdict) {
      const std::string& flag = result_.verdicts[verdict].flag;
      return *split_of(hyphenated(flag.substr(2, flag.find_first_of("= ") - 2)));
    };
    PerSplit words;
    std::string problem;
    try {
      PerSplit groups;
      for (const auto& [verdict, values] : split_paths_) {
        const bool are_in_file = result_.verdicts[verdict].row->name.ends_with("-path");
        for (const std::string& value : values) {
          std::vector<std::string> own = {value};
          if (are_in_file) own = split_path_groups(text_of_file(value));
          std::vector<std::string>& all = groups[split_of_verdict(verdict)];
          all.insert(all.end(), own.begin(), own.end());
        }
      }
      words = split_path_words(groups);
    } catch (const Error& error) {
      problem = error.what();
    }
    for (const auto& [number, values] : split_paths_) {
      Verdict& verdict = result_.verdicts[number];
      std::vector<std::string> own = std::exchange(words[split_of_verdict(number)], {});
      verdict.kind = problem.empty() ? Kind::satisfied : Kind::absent;
      verdict.reason = problem.empty() ? "is a share of --split" : problem;
      if (own.empty()) continue;
      verdict.kind = Kind::works;
      verdict.reason.clear();
      take_words(std::move(own), verdict);
      append(verdict.words);
    }
  }

  /// Translates the flags whose meaning depends on others.
  void take_derived() {
    for (const auto& [number, values] : derived_) {
      Verdict& verdict = result_.verdicts[number];
      try {
        DerivedWords derived = derived_words(values[0], values[1], [this](const auto& o) { return given_value(o); });
        verdict.kind = derived.words.empty() ? Kind::satisfied : Kind::works;
        verdict.reason = derived.reason;
        if (derived.words.empty()) continue;
        drop(derived.words.front(), fmt::format("--{} applies instead", values[0]));
        take_words(std::move(derived.words), verdict);
        append(verdict.words);
      } catch (const ConfigError& error) {
        verdict.kind = Kind::absent;
        verdict.reason = error.what();
      }
    }
  }

  /// Removes an option and its value from the translated words; the flag that gave it has no effect, for this reason.
  void drop(const std::string& option, const std::string& reason) {
    std::vector<std::string>& words = result_.arguments;
    for (std::size_t i = words.size(); i-- > 0;) {
      const bool is_inline = words[i].starts_with(option + "=");
      if (!is_inline && words[i] != option) continue;
      const auto at = words.begin() + static_cast<std::ptrdiff_t>(i);
      words.erase(at, at + (is_inline || i + 1 == words.size() ? 1 : 2));
    }
    for (Verdict& verdict : result_.verdicts) {
      if (verdict.words.empty() || verdict.words.front().substr(0, verdict.words.front().find('=')) != option) continue;
      verdict.kind = Kind::satisfied;
      verdict.reason = reason;
      verdict.words.clear();
    }
  }

  /// Translates the settings in files of DeepSpeed. Compares those that the command line has, too.
  void take_settings() {
    for (const auto& [number, values] : settings_) {
      try {
        const auto settings = io::json_settings(text_of_file(values.front()), values.front());
        for (const auto& [name, value] : settings) {
          const std::string enabled = name.substr(0, name.find('.')) + ".enabled";
          const bool is_off = name != enabled &&
                              std::ranges::find(settings, std::pair(enabled, std::string("false"))) != settings.end();
          take_setting(name, value, is_off);
        }
      } catch (const Error& error) {
        result_.verdicts[number].kind = Kind::absent;
        result_.verdicts[number].reason = error.what();
      }
    }
  }

  void take_setting(const std::string& name, const std::string& value, bool is_off) {
    Verdict verdict{.flag = shortened(name + " " + value), .row = nullptr, .words = {}, .reason = {}};
    verdict.row = find_flag(deepspeed_settings(), name, value);
    if (const Flag* beside = flag_beside(deepspeed_settings(), name + " " + value)) verdict.row = beside;
    verdict.kind = verdict.row->kind;
    verdict.reason = verdict.row->text;
    if (is_off || value == "auto" || value == "null") {
      verdict.kind = Kind::satisfied;
      verdict.reason = is_off ? "its section is not enabled" : "is left to the command line";
    } else if (verdict.kind == Kind::works) {
      verdict.reason.clear();
      std::vector<std::string> words = words_of(name, verdict.row->text, {value});
      const std::string given = words.size() == 2 ? given_value(words[0]) : "";
      const bool is_repeated = words.size() == 1 && std::ranges::count(result_.arguments, words[0]) > 0;
      // DeepSpeed's runtime scales the loss, by its file alone.
      const bool overrides = !given.empty() && name.starts_with("fp16.") && holds("--deepspeed");
      if (overrides && !are_equal(given, words[1])) drop(words[0], fmt::format("{} of the file applies", name));
      if (!is_repeated && (given.empty() || (overrides && !are_equal(given, words[1])))) {
        take_words(std::move(words), verdict);
      } else if (is_repeated || are_equal(given, words[1])) {
        verdict.kind = Kind::satisfied;
        verdict.reason = "is on the command line, too";
      } else {
        verdict.kind = Kind::absent;
        verdict.reason = fmt::format("contradicts {} {}; nearest: leave one of them out", words[0], shortened(given));
      }
    }
    append(verdict.words);
    result_.verdicts.push_back(std::move(verdict));
  }

  /// Returns the values of an option among the translated words, with spaces between; empty if it is not given.
  std::string given_value(const std::string& option) const {
    const std::vector<std::string>& words = result_.arguments;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == option) {
        return fmt::format(
            "{}", fmt::join(words.begin() + i + 1, words.begin() + i + 1 + count_values(words, i, Values::list), " "));
      }
      if (words[i].starts_with(option + "=")) return words[i].substr(option.size() + 1);
    }
    return "";
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
  const Flag* flag_beside(const std::vector<Flag>& flags, const std::string& name) const {
    const Flag* found = nullptr;
    for (const Flag& flag : flags) {
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
  /// Number of a flag's verdict, and the flag's values.
  struct Later {
    std::size_t verdict;
    std::vector<std::string> values;
  };
  std::vector<Later> settings_;     // flags that name a file of DeepSpeed
  std::vector<Later> split_paths_;  // weighted split paths
  std::vector<Later> derived_;      // name and value of flags that depend on others
  Translation result_;
};

}  // namespace

Translation translate(const std::vector<std::string>& arguments, const Options& options, const std::string& command) {
  return Translator(arguments, options, command).run();
}

}  // namespace trireme::app::megatron
