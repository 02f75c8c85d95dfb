#include "src/app/options/options.hpp"

#include <algorithm>
#include <boost/program_options.hpp>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <sstream>

#include "src/app/options/nearest_name.hpp"
#include "src/app/options/text_files.hpp"
#include "src/base/text.hpp"

namespace trireme::app {
namespace {
namespace po = boost::program_options;

template <class T>
void assign_number(const std::string& text, Range range, const char* kind, T& value) {
  T parsed{};
  const char* end = text.data() + text.size();
  // from_chars does not depend on the locale, so a decimal comma never changes a configuration.
  const auto [stop, error] = std::from_chars(text.data(), end, parsed);
  TRIREME_CHECK(error != std::errc::result_out_of_range, ConfigError, "does not fit into {}", kind);
  TRIREME_CHECK(error == std::errc{} && stop == end && std::isfinite(static_cast<double>(parsed)), ConfigError,
                "is not {}", kind);
  TRIREME_CHECK(range.contains(static_cast<double>(parsed)), ConfigError, "must be {}", range.text());
  value = parsed;
}

/// Throws ConfigError if a path is empty, often due to an unset variable in a batch file. Throws IoError if it is too
/// long for any file system.
void check_path(const std::string& path, const std::string& option) {
  constexpr std::size_t max_path_bytes = 4095, max_name_bytes = 255;  // on Linux
  TRIREME_CHECK(!path.empty(), ConfigError, "{} has an empty name: give one, or leave the option out", option);
  std::size_t max_component_bytes = 0;
  for (const auto& part : std::filesystem::path(path)) {
    max_component_bytes = std::max(max_component_bytes, part.native().size());
  }
  TRIREME_CHECK(path.size() <= max_path_bytes && max_component_bytes <= max_name_bytes, IoError,
                "{} {}: the name is too long; a path has at most {} bytes, each name in it {}", option, shortened(path),
                max_path_bytes, max_name_bytes);
}

/// Throws ConfigError for an empty key of several, "title,meta.text".
void check_keys(const std::string& keys, const std::string& option) {
  const std::vector<std::string_view> parts = split(keys, ',');
  TRIREME_CHECK(!parts.empty() && !keys.ends_with(',') && std::ranges::find(parts, "") == parts.end(), ConfigError,
                "{} has an empty key: give one, or leave the option out", option);
}

/// Reads a file of options: UTF-8, with or without a byte order mark.
std::string text_of_file(const std::string& path) {
  std::string text;
  try {
    text = read_text_file("config", path);
  } catch (const DataError& error) {
    throw ConfigError("--config: {}; give a file of lines 'name = value'", error.what());
  }
  TRIREME_CHECK(!text.starts_with("\xFF\xFE") && !text.starts_with("\xFE\xFF"), ConfigError,
                "{} is text in UTF-16: save it as UTF-8", path);
  TRIREME_CHECK(text.find('\0') == std::string::npos, ConfigError,
                "{} contains zero bytes, so it is not text: give the file of lines 'name = value'", path);
  int number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    const std::size_t comment = line.find('#');
    TRIREME_CHECK(comment == line.npos || comment == 0 || line[comment - 1] == ' ' || line[comment - 1] == '\t',
                  ConfigError,
                  "{}:{}: '#' begins a comment, so a value cannot contain it: put a blank before the comment, or give "
                  "the option on the command line",
                  path, number);
  }
  return text;
}

/// Returns whether a word is an option with one hyphen too few; "-1" and "-" are not.
bool lacks_hyphen(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && (std::isalpha(static_cast<unsigned char>(word[1])) != 0);
}

}  // namespace

Options::Options(std::string command, std::string summary)
    : command_(std::move(command)), summary_(std::move(summary)) {
  add("config", &config_files_, "FILE", "Read options from an INI file in UTF-8; the command line wins over it.");
}

void Options::section(std::string title) { section_ = std::move(title); }

void Options::add_entry(const std::string& names, const std::string& placeholder, const std::string& help, Arity arity,
                        std::string default_text, Setter set, std::function<std::string()> text) {
  Entry entry{.names = {},
              .placeholder = placeholder,
              .help = help,
              .section = section_,
              .arity = arity,
              .default_text = std::move(default_text),
              .set = std::move(set),
              .text = std::move(text)};
  for (const std::string_view name : split(names, ',')) {
    TRIREME_CHECK(find(entry.names.emplace_back(name)) == nullptr, ConfigError, "option --{} is declared twice", name);
  }
  entries_.push_back(std::move(entry));
}

void Options::add_flag(const std::string& names, bool* value, const std::string& help) {
  const auto set = [value](const std::vector<std::string>& texts) {
    TRIREME_CHECK(texts.front() == "true" || texts.front() == "false", ConfigError, "is neither true nor false");
    *value = texts.front() == "true";
  };
  add_entry(names, "", help, Arity::flag, *value ? "true" : "", set, [value] { return *value ? "true" : "false"; });
}

void Options::add_optional(const std::string& names, std::string* value, const std::string& placeholder,
                           const std::string& help) {
  const auto set = [value](const std::vector<std::string>& texts) { *value = texts.empty() ? "" : texts.front(); };
  add_entry(names, placeholder, help, Arity::optional, *value, set, [value] { return *value; });
}

void Options::add_argument(const std::string& placeholder, std::string* value, const std::string& help) {
  arguments_.push_back({placeholder, value, help});
}

void Options::add_arguments(const std::string& placeholder, std::vector<std::string>* values, const std::string& help) {
  constexpr std::string_view dots = "...";
  std::string shown = placeholder;
  if (!shown.ends_with(dots)) shown += dots;
  arguments_.push_back({shown, nullptr, help, values});
}

void Options::require(std::initializer_list<const char*> names) {
  for (const char* name : names) find(name)->required = true;
}

bool Options::parse(const std::vector<std::string>& arguments, std::vector<std::string> problems) {
  if (asks_for_help(arguments)) {
    const std::string text = help();
    std::fwrite(text.data(), 1, text.size(), stdout);
    return false;
  }
  read(arguments, problems);
  for (const Entry& entry : entries_) {
    if (entry.required && !entry.given) problems.push_back(fmt::format("--{} must be given", entry.names.front()));
  }
  TRIREME_CHECK(problems.empty(), ConfigError, "{}\nsee {} --help", fmt::join(problems, "\n"), command_);
  return true;
}

void Options::parse_known(const std::vector<std::string>& arguments) {
  std::vector<std::string> problems;
  try {
    read(arguments, problems);
  } catch (const Error&) {
    // The command reads its options again, and reports the problem.
  }
}

void Options::read(const std::vector<std::string>& arguments, std::vector<std::string>& problems) {
  std::vector<std::string> of_arguments;
  const Source command_line = read_command_line(arguments, of_arguments);
  for (const Given& option : command_line.options) {
    if (option.name != "config") continue;
    for (const std::string& path : option.values) apply(read_file(path, problems), problems);
  }
  apply(command_line, problems);
  problems.insert(problems.end(), of_arguments.begin(), of_arguments.end());
}

Options::Source Options::read_command_line(const std::vector<std::string>& arguments,
                                           std::vector<std::string>& problems) {
  po::options_description description;
  for (const Entry& entry : entries_) {
    for (const std::string& name : entry.names) {
      auto* value = po::value<std::vector<std::string>>();
      if (entry.arity == Arity::flag) value->zero_tokens();
      if (entry.arity == Arity::list) value->multitoken();
      if (entry.arity == Arity::optional) value->implicit_value({}, "");
      description.add_options()(name.c_str(), value, "");
    }
  }
  // No short options, so that "-1" is a number, and no guessing, so that an abbreviation is an unknown option.
  constexpr int style = po::command_line_style::allow_long | po::command_line_style::long_allow_next |
                        po::command_line_style::long_allow_adjacent;
  Source source;
  std::size_t arguments_taken = 0;
  bool after_unknown = false;  // a word after an unknown option is most likely its value
  try {
    const auto parsed =
        po::command_line_parser(with_hyphens(arguments)).options(description).style(style).allow_unregistered().run();
    for (const auto& option : parsed.options) {
      if (option.string_key.empty() || option.position_key >= 0) {
        for (const std::string& text : option.value) {
          if (text == "--") continue;
          Argument* const last = arguments_.empty() ? nullptr : &arguments_.back();
          if (last != nullptr) check_path(text, last->placeholder);
          if (last != nullptr && last->list != nullptr && arguments_taken + 1 >= arguments_.size()) {
            last->list->push_back(text);
            arguments_taken = arguments_.size();
          } else if (arguments_taken < arguments_.size()) {
            *arguments_[arguments_taken++].value = text;
          } else if (!after_unknown) {
            problems.push_back(fmt::format("unexpected argument '{}'", shortened(text)));
          }
        }
      } else {
        after_unknown = option.unregistered;
        const bool is_flag = !option.unregistered && find(option.string_key)->arity == Arity::flag;
        source.options.push_back({option.string_key, is_flag ? std::vector<std::string>{"true"} : option.value});
      }
    }
  } catch (const po::error& error) {
    throw ConfigError("{}\nsee {} --help", error.what(), command_);
  }
  for (; arguments_taken < arguments_.size(); ++arguments_taken) {
    problems.push_back(
        fmt::format("{} is missing: {}", arguments_[arguments_taken].placeholder, arguments_[arguments_taken].help));
  }
  return source;
}

/// Replaces "-lr" in `arguments` by "---lr": an unknown option, not a value of the option before.
std::vector<std::string> Options::with_hyphens(std::vector<std::string> arguments) const {
  const std::string* last = nullptr;  // the word before, if it is an option that takes a value
  for (std::string& word : arguments) {
    if (word == "--") break;
    const bool is_option = word.starts_with("--") && find(word.substr(2, word.find('=') - 2)) != nullptr;
    const bool needs_value = last != nullptr && find(last->substr(2))->arity != Arity::optional;
    TRIREME_CHECK(!needs_value || !is_option, ConfigError, "{} has no value: {} follows it\nsee {} --help", *last,
                  shortened(word), command_);
    const Arity of_last = last == nullptr ? Arity::flag : find(last->substr(2))->arity;
    const bool is_value = of_last == Arity::one || (of_last == Arity::optional && word == "-");
    if (lacks_hyphen(word) && !is_value) word.insert(0, "--");
    const Entry* entry = word.starts_with("--") ? find(word.substr(2)) : nullptr;
    last = entry != nullptr && entry->arity != Arity::flag && !is_value ? &word : nullptr;
  }
  return arguments;
}

Options::Source Options::read_file(const std::string& path, std::vector<std::string>& problems) const {
  check_path(path, "--config");
  std::istringstream text(text_of_file(path));
  Source source{" in " + path, {}};
  Lines lines;
  try {
    const po::options_description none;
    for (const auto& option : po::parse_config_file(text, none, /*allow_unregistered=*/true).options) {
      for (const std::string& value : option.value) lines.emplace_back(option.string_key, value);
    }
  } catch (const po::error& error) {
    throw ConfigError("{}: {}", path, shortened(error.what()));
  }
  if (translate_) {
    std::vector<std::string> of_file;
    lines = translate_(lines, of_file);
    for (const std::string& problem : of_file) problems.push_back(fmt::format("{}: {}", path, problem));
  }
  for (auto& [name, value] : lines) source.options.push_back({std::move(name), {std::move(value)}});
  return source;
}

void Options::apply(const Source& source, std::vector<std::string>& problems) {
  struct Last {
    const Given* option;
    std::vector<std::string> values;
  };
  std::map<Entry*, Last> seen;
  for (const Given& option : source.options) {
    Entry* entry = find(option.name);
    if (entry == nullptr) {
      problems.push_back(unknown_text(option.name, source.description));
      continue;
    }
    if (option.name == "config" && !source.description.empty()) {
      problems.push_back(
          fmt::format("--config{}: a file of options cannot include another; give --config for each, on the command "
                      "line",
                      source.description));
      continue;
    }
    const auto [found, is_new] = seen.try_emplace(entry, Last{&option, {}});
    Last& last = found->second;
    if (is_new || entry->arity == Arity::list) {
      last.values.insert(last.values.end(), option.values.begin(), option.values.end());
    } else if (last.values != option.values) {
      problems.push_back(fmt::format("--{} {} and --{} {}{} contradict each other", last.option->name,
                                     shortened(text_of(last.values)), option.name, shortened(text_of(option.values)),
                                     source.description));
    }
  }
  for (const auto& [entry, last] : seen) {
    if (names_files(*entry)) {
      for (const std::string& path : last.values) check_path(path, "--" + last.option->name);
    }
    if (entry->placeholder.starts_with("KEY")) {
      for (const std::string& keys : last.values) check_keys(keys, "--" + last.option->name);
    }
    try {
      entry->given = true;
      entry->set(last.values);
    } catch (const ConfigError& error) {
      problems.push_back(fmt::format("--{} {}{} {}", last.option->name, shortened(text_of(last.values)),
                                     source.description, error.what()));
    }
  }
}

std::string Options::unknown_text(const std::string& name, const std::string& where) const {
  const std::string word = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.insert(names.end(), entry.names.begin(), entry.names.end());
  return fmt::format("there is no option {}{}{}{}", name.starts_with('-') ? "" : "--", shortened(name), where,
                     suggestion(word, names, "--"));
}

std::string Options::not_among(const std::string& word, const std::vector<std::string_view>& words) {
  const std::vector<std::string> names(words.begin(), words.end());
  return fmt::format("is not one of {}{}", fmt::join(words, ", "), suggestion(word, names));
}

const Options::Entry* Options::find(const std::string& name) const {
  for (const Entry& entry : entries_) {
    if (std::ranges::find(entry.names, name) != entry.names.end()) return &entry;
  }
  return nullptr;
}

bool Options::given(const std::string& name) const {
  const Entry* entry = find(name);
  return entry != nullptr && entry->given;
}

bool Options::requested(const std::string& name) const {
  return given(name) && (takes_value(name) || find(name)->text() == "true");
}

std::string Options::spelling(const std::string& name) const {
  const auto same = [](char a, char b) { return a == b || ((a == '_' || a == '-') && (b == '_' || b == '-')); };
  for (const Entry& entry : entries_) {
    for (const std::string& own : entry.names) {
      if (std::ranges::equal(own, name, same)) return own;
    }
  }
  return "";
}

bool Options::takes_path(const std::string& name) const {
  const Entry* entry = find(name);
  return entry != nullptr && names_files(*entry);
}

std::vector<std::pair<std::string, std::string>> Options::values() const {
  std::vector<std::pair<std::string, std::string>> result;
  for (const Entry& entry : entries_) {
    if (std::string text = entry.text(); !text.empty()) result.emplace_back(entry.names.front(), std::move(text));
  }
  return result;
}

void Options::assign(const std::vector<std::string>& texts, Range range, int& value) {
  assign_number(texts.front(), range, "a whole number of 32 bits", value);
}
void Options::assign(const std::vector<std::string>& texts, Range range, std::int64_t& value) {
  assign_number(texts.front(), range, "a whole number of 64 bits", value);
}
void Options::assign(const std::vector<std::string>& texts, Range range, std::uint64_t& value) {
  assign_number(texts.front(), range, "a whole number of 64 bits that is not negative", value);
}
void Options::assign(const std::vector<std::string>& texts, Range range, double& value) {
  assign_number(texts.front(), range, "a number", value);
}
void Options::assign(const std::vector<std::string>& texts, Range, std::string& value) { value = texts.front(); }
void Options::assign(const std::vector<std::string>& texts, Range, std::vector<std::string>& value) { value = texts; }
void Options::assign(const std::vector<std::string>& texts, Range range, std::vector<std::int64_t>& value) {
  std::vector<std::int64_t> parsed(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    try {
      assign({texts[i]}, range, parsed[i]);
    } catch (const ConfigError& error) {
      throw ConfigError("has the element '{}', which {}", texts[i], error.what());
    }
  }
  value = std::move(parsed);
}

}  // namespace trireme::app
