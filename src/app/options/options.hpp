#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/app/manual/manual.hpp"
#include "src/base/attributes.hpp"
#include "src/base/check.hpp"
#include "src/base/range.hpp"

namespace trireme::app {

/// Options of one command. Each is bound to a variable, whose value when it is declared is the default:
///
///   Options options("trireme train", "Trains a model.");
///   options.section("Parallelism");
///   options.add("tensor-model-parallel-size,tp", &tp, "N", "Ranks that share each layer.", at_least(1));
///   options.add_choice("dtype", &dtype, {{"fp32", DType::fp32}, {"bf16", DType::bf16}}, "Type of the weights.");
///   options.add_flag("sequence-parallel", &sequence_parallel, "Split activations along the sequence, too.");
///   if (!options.parse(arguments)) return 0;  // --help
///
/// Messages use the first name; the others are aliases. Values come from INI files (`--config FILE`, lines "name =
/// value", a list's name once per element) and from the command line, which takes precedence.
///
/// `parse` throws one ConfigError that lists every problem: unknown names, with the nearest known one; missing options;
/// values of the wrong type or out of range; different values of one option in one source. Abbreviations and "-lr" are
/// unknown names. Values of options whose placeholder begins with FILE, [FILE, DIR or PREFIX are paths. An empty path
/// is a problem; one too long for any file system is an IoError.
class Options {
 public:
  Options(std::string command, std::string summary);

  /// Sets the title under which the help lists the options that follow.
  void section(std::string title);

  /// Adds a number, a text or a list. T is int, std::int64_t, std::uint64_t, double, std::string, or a std::vector of
  /// std::string or std::int64_t. All but the lists may be in std::optional, which is empty unless the option is given.
  /// `range` holds for each element of a list.
  template <class T>
  void add(const std::string& names, T* value, const std::string& placeholder, const std::string& help,
           Range range = {}) {
    add_entry(
        names, placeholder, help, is_list<T> ? Arity::list : Arity::one, text_of(*value),
        [value, range](const std::vector<std::string>& texts) { assign(texts, range, *value); },
        [value] { return text_of(*value); });
  }

  /// Adds an option that takes one of several names, which are literals.
  template <class T>
  void add_choice(const std::string& names, T* value, std::vector<Choice<T>> choices, const std::string& help) {
    std::vector<std::string_view> words;
    for (const Choice<T>& choice : choices) words.push_back(choice.name);
    const auto text = [value, choices]() -> std::string {
      for (const Choice<T>& choice : choices) {
        if (choice.value == *value) return std::string(choice.name);
      }
      return "";
    };
    const auto set = [value, choices, words](const std::vector<std::string>& texts) {
      for (const Choice<T>& choice : choices) {
        if (choice.name == texts.front()) {
          *value = choice.value;
          return;
        }
      }
      throw ConfigError("{}", not_among(texts.front(), words));
    };
    add_entry(names, fmt::format("{}", fmt::join(words, "|")), help, Arity::one, text(), set, text);
  }
  template <class T>
  void add_choice(const std::string& names, T* value, std::span<const std::type_identity_t<Choice<T>>> choices,
                  const std::string& help) {
    add_choice(names, value, std::vector<Choice<T>>(choices.begin(), choices.end()), help);
  }
  template <class T>
  void add_choice(const std::string& names, std::optional<T>* value,
                  std::span<const std::type_identity_t<Choice<T>>> choices, const std::string& help) {
    std::vector<Choice<std::optional<T>>> list;
    for (const Choice<T>& choice : choices) list.push_back({choice.name, choice.value});
    add_choice(names, value, std::move(list), help);
  }

  /// Adds an option without a value, true if given. In an INI file: "name = true" or "name = false".
  void add_flag(const std::string& names, bool* value, const std::string& help);

  /// Adds an option whose value may be left out; it is then empty. The placeholder is in brackets: "[FILE]".
  void add_optional(const std::string& names, std::string* value, const std::string& placeholder,
                    const std::string& help);

  /// Adds a positional argument. Arguments are filled in this order; all are mandatory.
  void add_argument(const std::string& placeholder, std::string* value, const std::string& help);

  /// Adds a list that takes all remaining arguments, at least one. Help and messages show dots after `placeholder`,
  /// which may end with them.
  void add_arguments(const std::string& placeholder, std::vector<std::string>* values, const std::string& help);

  /// Makes `parse` refuse a command line without these options; the help shows "[required]" instead of a default.
  void require(std::initializer_list<const char*> names);

  /// Sets the variables. Returns false for `--help`: the help was printed on stdout, and nothing is set. Reports
  /// `problems`, those of the command line found so far, with the others.
  bool parse(const std::vector<std::string>& arguments, std::vector<std::string> problems = {});

  /// Sets the variables of the options declared here and skips all else, mistakes included. For values that are
  /// needed before the command reads its options.
  void parse_known(const std::vector<std::string>& arguments);

  /// Returns whether the option was given, under any of its names, on the command line or in a file. False for an
  /// option that this command does not have.
  bool given(const std::string& name) const;
  /// Returns whether the option was given and is not a flag that a file turns off.
  bool requested(const std::string& name) const;

  /// Returns the declared name that equals `name` except for underscores and hyphens; empty if there is none.
  std::string spelling(const std::string& name) const;

  bool takes_path(const std::string& name) const;
  bool takes_value(const std::string& name) const { return find(name) != nullptr && find(name)->arity != Arity::flag; }
  bool takes_list(const std::string& name) const { return find(name) != nullptr && find(name)->arity == Arity::list; }

  /// Returns the files of options that were given.
  const std::vector<std::string>& config_files() const { return config_files_; }

  /// Lines "name = value" of a file of options.
  using Lines = std::vector<std::pair<std::string, std::string>>;
  /// Makes `parse` read a file's lines as `translate` returns them, which adds its problems to the others.
  void translate_files(std::function<Lines(const Lines& lines, std::vector<std::string>& problems)> translate) {
    translate_ = std::move(translate);
  }

  /// Returns the first name and the current value of every option that has a value, in order of declaration.
  std::vector<std::pair<std::string, std::string>> values() const;

  std::string help() const;

  /// Returns the content of the help: sections and options in its order, defaults in the texts. Leaves the summary
  /// empty.
  CommandManual manual() const;

 private:
  enum class Arity { flag, optional, one, list };
  using Setter = std::function<void(const std::vector<std::string>&)>;
  struct Entry {
    std::vector<std::string> names;
    std::string placeholder;
    std::string help;
    std::string section;
    Arity arity = Arity::one;
    std::string default_text;
    Setter set;  ///< throws ConfigError that ends the sentence "--name VALUE ..."
    std::function<std::string()> text;
    bool required = false;
    bool given = false;
  };
  struct Argument {
    std::string placeholder;
    std::string* value;
    std::string help;
    std::vector<std::string>* list = nullptr;  ///< instead of `value`, for the last argument
  };
  struct Given {  ///< an option as it stands in a source
    std::string name;
    std::vector<std::string> values;
  };
  struct Source {
    std::string description;  ///< "" for the command line, " in FILE" for a file
    std::vector<Given> options;
  };

  template <class T>
  static constexpr bool is_list = false;

  void add_entry(const std::string& names, const std::string& placeholder, const std::string& help, Arity arity,
                 std::string default_text, Setter set, std::function<std::string()> text);
  const Entry* find(const std::string& name) const;
  Entry* find(const std::string& name) { return const_cast<Entry*>(std::as_const(*this).find(name)); }
  void read(const std::vector<std::string>& arguments, std::vector<std::string>& problems);
  static bool names_files(const Entry& entry) {
    return entry.placeholder.starts_with("FILE") || entry.placeholder.starts_with("[FILE") ||
           entry.placeholder.starts_with("DIR") || entry.placeholder.starts_with("PREFIX");
  }
  std::string unknown_text(const std::string& name, const std::string& where) const;
  /// Returns "is not one of A, B; did you mean A?".
  static std::string not_among(const std::string& word, const std::vector<std::string_view>& words);
  std::vector<std::string> with_hyphens(std::vector<std::string> arguments) const;
  Source read_command_line(const std::vector<std::string>& arguments, std::vector<std::string>& problems);
  Source read_file(const std::string& path, std::vector<std::string>& problems) const;
  void apply(const Source& source, std::vector<std::string>& problems);

  static void assign(const std::vector<std::string>& texts, Range range, int& value);
  static void assign(const std::vector<std::string>& texts, Range range, std::int64_t& value);
  static void assign(const std::vector<std::string>& texts, Range range, std::uint64_t& value);
  static void assign(const std::vector<std::string>& texts, Range range, double& value);
  static void assign(const std::vector<std::string>& texts, Range range, std::string& value);
  static void assign(const std::vector<std::string>& texts, Range range, std::vector<std::string>& value);
  static void assign(const std::vector<std::string>& texts, Range range, std::vector<std::int64_t>& value);
  template <class T>
  static void assign(const std::vector<std::string>& texts, Range range, std::optional<T>& value) {
    T parsed{};
    assign(texts, range, parsed);
    value = parsed;
  }

  static std::string text_of(const std::string& value) { return value; }
  template <class T>
  static std::string text_of(const std::vector<T>& value) {
    return fmt::format("{}", fmt::join(value, " "));
  }
  template <class T>
  static std::string text_of(const std::optional<T>& value) {
    return value ? text_of(*value) : "";
  }
  template <class T>
  static std::string text_of(const T& value) {
    return fmt::format("{}", value);
  }

  std::string command_;
  std::string summary_;
  std::string section_ = "Options";
  std::deque<Entry> entries_;
  std::vector<Argument> arguments_;
  std::vector<std::string> config_files_;
  std::function<Lines(const Lines&, std::vector<std::string>&)> translate_;
};

template <class T>
inline constexpr bool Options::is_list<std::vector<T>> = true;

inline bool asks_for_help(const std::vector<std::string>& arguments) {
  return std::ranges::any_of(arguments, [](const std::string& word) { return word == "--help" || word == "-h"; });
}

}  // namespace trireme::app
