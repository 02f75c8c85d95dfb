#include "src/app/options.hpp"

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <string_view>

namespace trireme::app {
namespace {
namespace po = boost::program_options;

constexpr std::size_t help_column = 34;
constexpr std::size_t help_width = 110;

/// Levenshtein's distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      diagonal = std::exchange(row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, diagonal + (a[i] != b[j])}));
    }
  }
  return row.back();
}

std::string range_text(Range range) {
  if (std::isinf(range.greatest)) return fmt::format("at least {}", range.least);
  if (std::isinf(range.least)) return fmt::format("at most {}", range.greatest);
  return fmt::format("between {} and {}", range.least, range.greatest);
}

template <class T>
void assign_number(const std::string& text, Range range, const char* kind, T& value) {
  T parsed{};
  const char* end = text.data() + text.size();
  // from_chars does not depend on the locale, so a decimal comma never changes a configuration.
  const auto [stop, error] = std::from_chars(text.data(), end, parsed);
  TRIREME_CHECK(error != std::errc::result_out_of_range, ConfigError, "does not fit into {}", kind);
  TRIREME_CHECK(error == std::errc{} && stop == end && std::isfinite(static_cast<double>(parsed)), ConfigError,
                "is not {}", kind);
  TRIREME_CHECK(static_cast<double>(parsed) >= range.least && static_cast<double>(parsed) <= range.greatest,
                ConfigError, "must be {}", range_text(range));
  value = parsed;
}

/// `text` broken into lines at spaces, each after the first with `indent` spaces in front.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::string result;
  std::size_t column = indent;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (column > indent && column + 1 + end - begin > help_width) {
      result += '\n';
      result.append(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result.append(text, begin, end - begin);
    column += end - begin;
    begin = end + 1;
  }
  return result;
}

std::string help_line(const std::string& left, const std::string& right) {
  std::string line = "  " + left;
  if (line.size() + 2 > help_column)
    line.append("\n").append(help_column, ' ');
  else
    line.resize(help_column, ' ');
  return line + wrapped(right, help_column) + "\n";
}

}  // namespace

Options::Options(std::string command, std::string summary)
    : command_(std::move(command)), summary_(std::move(summary)) {
  add("config", &config_files_, "FILE", "Read options from an INI file; the command line wins over it.");
}

void Options::section(std::string title) { section_ = std::move(title); }

void Options::add_entry(const std::string& names, const std::string& placeholder, const std::string& help, Arity arity,
                        std::string default_text, Setter set, std::function<std::string()> text) {
  Entry entry;
  entry.placeholder = placeholder;
  entry.help = help;
  entry.section = section_;
  entry.arity = arity;
  entry.default_text = std::move(default_text);
  entry.set = std::move(set);
  entry.text = std::move(text);
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    entry.names.push_back(names.substr(begin, end - begin));
    TRIREME_CHECK(find(entry.names.back()) == nullptr, ConfigError, "option --{} is declared twice",
                  entry.names.back());
    begin = end + 1;
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

void Options::add_argument(const std::string& placeholder, std::string* value, const std::string& help) {
  arguments_.push_back({placeholder, value, help});
}

void Options::add_arguments(const std::string& placeholder, std::vector<std::string>* values, const std::string& help) {
  arguments_.push_back({placeholder, nullptr, help, values});
}

void Options::require(const std::string& name) { find(name)->required = true; }

bool Options::parse(const std::vector<std::string>& arguments) {
  if (std::ranges::any_of(arguments, [](const std::string& a) { return a == "--help" || a == "-h"; })) {
    const std::string text = help();
    std::fwrite(text.data(), 1, text.size(), stdout);
    return false;
  }
  std::vector<std::string> problems;
  read(arguments, problems);
  for (const Entry& entry : entries_) {
    if (entry.required && !entry.given) problems.push_back(fmt::format("--{} must be given", entry.names.front()));
  }
  TRIREME_CHECK(problems.empty(), ConfigError, "{}\nsee {} --help", joined(problems, "\n"), command_);
  return true;
}

void Options::parse_known(const std::vector<std::string>& arguments) {
  std::vector<std::string> problems;
  try {
    read(arguments, problems);
  } catch (const Error&) {
    // The command reads its options again, and says so then.
  }
}

void Options::read(const std::vector<std::string>& arguments, std::vector<std::string>& problems) {
  const Source command_line = read_command_line(arguments, problems);
  for (const Given& option : command_line.options) {
    if (option.name != "config") continue;
    for (const std::string& path : option.values) apply(read_file(path), problems);
  }
  apply(command_line, problems);
}

Options::Source Options::read_command_line(const std::vector<std::string>& arguments,
                                           std::vector<std::string>& problems) {
  po::options_description description;
  for (const Entry& entry : entries_) {
    for (const std::string& name : entry.names) {
      auto* value = po::value<std::vector<std::string>>();
      if (entry.arity == Arity::flag) value->zero_tokens();
      if (entry.arity == Arity::list) value->multitoken();
      description.add_options()(name.c_str(), value, "");
    }
  }
  // No short options, so that "-1" is a number, and no guessing, so that an abbreviation is an unknown option.
  constexpr int style = po::command_line_style::allow_long | po::command_line_style::long_allow_next |
                        po::command_line_style::long_allow_adjacent;
  Source source;
  std::size_t arguments_taken = 0;
  try {
    const auto parsed = po::command_line_parser(arguments).options(description).style(style).allow_unregistered().run();
    for (const auto& option : parsed.options) {
      if (option.string_key.empty() || option.position_key >= 0) {
        for (const std::string& text : option.value) {
          if (text == "--") continue;
          Argument* const last = arguments_.empty() ? nullptr : &arguments_.back();
          if (last != nullptr && last->list != nullptr && arguments_taken + 1 >= arguments_.size()) {
            last->list->push_back(text);
            arguments_taken = arguments_.size();
          } else if (arguments_taken == arguments_.size()) {
            problems.push_back(fmt::format("unexpected argument '{}'", text));
          } else {
            *arguments_[arguments_taken++].value = text;
          }
        }
      } else {
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

Options::Source Options::read_file(const std::string& path) const {
  std::ifstream file(path);
  TRIREME_CHECK(file.is_open(), IoError, "cannot read the options in {}", path);
  TRIREME_CHECK(std::filesystem::is_regular_file(path), IoError, "cannot read the options in {}: it is not a file",
                path);
  Source source{" in " + path, {}};
  try {
    const po::options_description none;
    for (const auto& option : po::parse_config_file(file, none, /*allow_unregistered=*/true).options) {
      source.options.push_back({option.string_key, option.value});
    }
  } catch (const po::error& error) {
    throw ConfigError("{}: {}", path, error.what());
  }
  TRIREME_CHECK(!file.bad(), IoError, "cannot read the options in {}", path);
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
      problems.push_back(
          fmt::format("there is no option --{}{}{}", option.name, source.description, nearest(option.name)));
      continue;
    }
    const auto [place, is_new] = seen.try_emplace(entry, Last{&option, {}});
    Last& last = place->second;
    if (is_new || entry->arity == Arity::list) {
      last.values.insert(last.values.end(), option.values.begin(), option.values.end());
    } else if (last.values != option.values) {
      problems.push_back(fmt::format("--{} {} and --{} {}{} contradict each other", last.option->name,
                                     joined(last.values, " "), option.name, joined(option.values, " "),
                                     source.description));
    }
  }
  for (const auto& [entry, last] : seen) {
    try {
      entry->given = true;
      entry->set(last.values);
    } catch (const ConfigError& error) {
      problems.push_back(
          fmt::format("--{} {}{} {}", last.option->name, joined(last.values, " "), source.description, error.what()));
    }
  }
}

const Options::Entry* Options::find(const std::string& name) const {
  for (const Entry& entry : entries_) {
    if (std::ranges::find(entry.names, name) != entry.names.end()) return &entry;
  }
  return nullptr;
}

std::string Options::nearest(const std::string& name) const {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const Entry& entry : entries_) {
    for (const std::string& candidate : entry.names) {
      const bool abbreviated = name.size() >= 3 && candidate.starts_with(name);
      const std::size_t d = abbreviated ? 1 : distance(name, candidate);
      if (d < best_distance) {
        best_distance = d;
        best = candidate;
      }
    }
  }
  return best.empty() ? "" : fmt::format("; did you mean --{}?", best);
}

bool Options::given(const std::string& name) const {
  const Entry* entry = find(name);
  return entry != nullptr && entry->given;
}

std::vector<std::pair<std::string, std::string>> Options::values() const {
  std::vector<std::pair<std::string, std::string>> result;
  for (const Entry& entry : entries_) {
    if (std::string text = entry.text(); !text.empty()) result.emplace_back(entry.names.front(), std::move(text));
  }
  return result;
}

std::string Options::help() const {
  std::string text = "Usage: " + command_;
  for (const Argument& argument : arguments_) text += " " + argument.placeholder;
  text += " [OPTION]...\n" + wrapped(summary_, 0) + "\n";
  if (!arguments_.empty()) text += "\n";
  for (const Argument& argument : arguments_) text += help_line(argument.placeholder, argument.help);
  // The options every command has come last.
  std::vector<const Entry*> ordered;
  for (const Entry& entry : entries_) ordered.push_back(&entry);
  std::ranges::rotate(ordered, ordered.begin() + 1);
  std::string section;
  for (const Entry* entry : ordered) {
    const std::string title = entry == ordered.back() ? "General" : entry->section;
    if (title != section) text += "\n" + (section = title) + ":\n";
    std::string left;
    for (const std::string& name : entry->names) left += (left.empty() ? "--" : ", --") + name;
    if (!entry->placeholder.empty()) left += " " + entry->placeholder + (entry->arity == Arity::list ? "..." : "");
    const std::string fallback = entry->default_text.empty() ? "" : fmt::format(" [{}]", entry->default_text);
    text += help_line(left, entry->help + fallback);
  }
  return text + help_line("--help", "Print this and leave.");
}

std::string Options::joined(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
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

}  // namespace trireme::app
