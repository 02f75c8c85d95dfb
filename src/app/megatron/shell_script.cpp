#include "src/app/megatron/shell_script.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <span>

#include "src/app/megatron/open_parts.hpp"
#include "src/app/megatron/shell_arithmetic.hpp"
#include "src/app/megatron/shell_lexer.hpp"
#include "src/app/megatron/shell_variables.hpp"
#include "src/base/check.hpp"

namespace trireme::app::megatron {
namespace {

using Words = std::vector<std::string>;

constexpr std::string_view programs_of_training[] = {"pretrain", "train", "finetune"};
constexpr std::string_view programs_of_generation[] = {"generate_samples", "run_text_generation", "generate_text",
                                                       "gpt_static_inference", "gpt_dynamic_inference"};
constexpr std::string_view program_of_tasks = "main.py";

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

/// Returns whether a word is a program of Megatron-LM, as pretrain_gpt.py.
bool is_program(std::string_view word) {
  const std::string_view name = file_name(word);
  const auto begins = [&](std::string_view with) { return name.starts_with(with); };
  return name.ends_with(".py") && name.find_first_of(" \t\n") == name.npos &&
         (std::ranges::any_of(programs_of_training, begins) || std::ranges::any_of(programs_of_generation, begins) ||
          name == program_of_tasks);
}

/// Returns `text` with its placeholders, `<Specify path>` behind = or a quote or as a word, as variables:
/// `${Specify_path}`. A redirection has a space or a file name where a placeholder has none.
std::string with_placeholders(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t end = text[i] == '<' ? text.find_first_of(">\n<$\"'`|&;", i + 1) : text.npos;
    const bool opens = i > 0 && std::string_view("= \t\"',\n").find(text[i - 1]) != std::string_view::npos &&
                       i + 1 < text.size() && std::isalpha(static_cast<unsigned char>(text[i + 1])) != 0;
    const bool closes =
        end < text.size() && text[end] == '>' && text[end - 1] != ' ' &&
        (end + 1 == text.size() || std::string_view(" \t\n\"',/_\\)").find(text[end + 1]) != std::string_view::npos);
    if (!opens || !closes) {
      result += text[i];
      continue;
    }
    std::string name(text.substr(i + 1, end - i - 1));
    std::ranges::replace_if(
        name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    result += "${" + name + "}";
    i = end;
  }
  return result;
}

/// Result of a test; nothing where it cannot be decided.
using Truth = std::optional<bool>;

/// Runs the statements of a script in mind.
class Interpreter {
 public:
  ShellScript run(std::string_view text) {
    statements(text, 1);
    if (script_.launches.empty()) read_documents();
    script_.unknown = variables_.unknown();
    script_.commands = variables_.commands();
    return std::move(script_);
  }

 private:
  /// An `if` or `case` around a statement.
  struct Block {
    bool is_case = false;
    bool active = true;  ///< the present branch counts
    bool taken = false;  ///< a branch has counted
    std::string subject;
  };

  /// Reads here-documents as scripts, which `sbatch <<END` and `cat >run.sh <<END` make of them. Others have no launch,
  /// and are no fault where they cannot be read.
  void read_documents() {
    for (const ShellDocument& document : std::vector<ShellDocument>(documents_)) {
      try {
        depth_ = 0;
        statements(document.text, document.line);
      } catch (const ConfigError&) {
        blocks_.clear();
      }
    }
  }

  void statements(std::string_view text, int line) {
    TRIREME_CHECK(++depth_ < 10, ConfigError, "the script calls bash or eval more than ten times in one another");
    const std::vector<ShellToken> tokens = shell_tokens(text, line, &documents_);
    std::vector<Block> blocks;
    std::swap(blocks, blocks_);
    Truth last = true;  // the truth of the test before
    std::string joint;  // the operator before
    bool in_condition = false;
    for (std::size_t i = 0; i < tokens.size();) {
      if (tokens[i].type == ShellToken::Type::operation) {
        joint = tokens[i].text;
        const bool next_pattern = joint == ";;" && !blocks_.empty() && blocks_.back().is_case;
        i = next_pattern ? pattern(tokens, i + 1) : i + 1;
        continue;
      }
      const std::size_t begin = i;
      while (i < tokens.size() && tokens[i].type == ShellToken::Type::word) ++i;
      std::span<const ShellToken> words(tokens.data() + begin, i - begin);
      words = keywords(words, in_condition, last);
      if (!words.empty() && words[0].text == "case" && words.size() >= 3) {
        blocks_.push_back({.is_case = true, .active = false, .subject = variables_.tested(words[1].text)});
        i = pattern(tokens, begin + static_cast<std::size_t>(words.data() - &tokens[begin]) + 3);
        continue;
      }
      if (words.empty() || !active()) continue;
      const bool skips = (joint == "&&" && last == false) || (joint == "||" && last == true);
      if (skips) continue;
      last = command(words);
      joint.clear();
    }
    std::swap(blocks, blocks_);
    --depth_;
  }

  bool active() const { return std::ranges::all_of(blocks_, &Block::active); }

  /// Takes the keywords that a statement begins with, and returns its other words.
  std::span<const ShellToken> keywords(std::span<const ShellToken> words, bool& in_condition, Truth& last) {
    while (!words.empty()) {
      const std::string& word = words[0].text;
      if (word == "if") {
        blocks_.push_back({});
        in_condition = true;
        last = true;
      } else if (word == "then" && in_condition && !blocks_.empty()) {
        Block& block = blocks_.back();
        block.active = !block.taken && last.value_or(true);
        block.taken = block.taken || block.active;
        in_condition = false;
      } else if ((word == "elif" || word == "else") && !blocks_.empty()) {
        Block& block = blocks_.back();
        block.active = !block.taken;
        in_condition = word == "elif";
        if (!in_condition) block.taken = true;
        last = true;
      } else if ((word == "fi" || word == "esac") && !blocks_.empty()) {
        blocks_.pop_back();
      } else if (word == "for" && words.size() >= 4 && words[2].text == "in") {
        const Words values = active() ? variables_.fields(words[3].text) : Words{};
        if (!values.empty()) variables_.set(words[1].text, {values.front()});
        return {};
      } else if (!is_one_of(word, {"while", "until", "do", "done", "{", "}", "!", "time", "function"})) {
        break;
      }
      words = words.subspan(1);
    }
    return words;
  }

  /// Reads the next pattern of a `case` at `i`, and returns the place behind it.
  std::size_t pattern(const std::vector<ShellToken>& tokens, std::size_t i) {
    Block& block = blocks_.back();
    bool matches = false;
    for (; i < tokens.size() && !tokens[i].is(")"); ++i) {
      if (tokens[i].type != ShellToken::Type::word) continue;
      if (tokens[i].text == "esac") return i;
      const std::string text = variables_.tested(tokens[i].text);
      matches = matches || fnmatch(text.c_str(), block.subject.c_str(), 0) == 0;
    }
    block.active = matches && !block.taken;
    block.taken = block.taken || block.active;
    return std::min(i + 1, tokens.size());
  }

  /// Takes a command, and returns its truth where it is a test.
  Truth command(std::span<const ShellToken> words) {
    const int line = words[0].line;
    const std::string& name = words[0].text;
    if (is_one_of(name, {"[", "[[", "test"}) || words.back().text == "]]" || words.back().text == "]") {
      return truth(words);
    }
    const bool declares = is_one_of(name, {"export", "declare", "local", "readonly", "typeset"});
    std::size_t assigned = declares ? 1 : 0;
    while (assigned < words.size() &&
           (variables_.assign(words[assigned].text) || (declares && !words[assigned].text.empty()))) {
      ++assigned;
    }
    if (assigned == words.size()) return {};
    Words fields;
    for (const ShellToken& word : words.subspan(assigned)) {
      Words more = variables_.fields(word.text);
      fields.insert(fields.end(), more.begin(), more.end());
    }
    if (fields.empty()) return {};
    const std::string_view program = file_name(fields[0]);
    if (program == "source" || program == ".") script_.sourced.push_back(fields.size() > 1 ? written(fields[1]) : "");
    if (program == "eval") {
      std::string text;
      for (std::size_t k = 1; k < fields.size(); ++k) text += written(fields[k]) + " ";
      statements(text, line);
    } else if (!is_one_of(program,
                          {"echo", "printf", "cat", "tee", "cp", "mv", "ls", "grep", "sed", "rm", "mkdir", "cd"})) {
      launch(fields, line);
    }
    return {};
  }

  /// Takes the launch of a program of Megatron-LM, if a command is one.
  void launch(const Words& fields, int line) {
    for (std::size_t k = 0; k < fields.size(); ++k) {
      const std::string& field = fields[k];
      if (is_program(field)) {
        const auto place = fields.begin() + static_cast<std::ptrdiff_t>(k);
        script_.launches.push_back(
            {line, {fields.begin(), place}, std::string(file_name(field)), {place + 1, fields.end()}});
        return;
      }
      const bool is_script = field.find(".py") != field.npos && field.find_first_of(" \n") != field.npos;
      const bool is_of_shell = k > 1 && fields[k - 1] == "-c" && is_one_of(file_name(fields[k - 2]), {"bash", "sh"});
      if (is_of_shell || (is_script && k > 0)) return statements(written(field), line);
    }
  }

  /// Returns the truth of a test in brackets. A variable without a value is empty.
  Truth truth(std::span<const ShellToken> words) {
    Words texts;
    for (const ShellToken& word : words) {
      const bool is_bracket = is_one_of(word.text, {"[", "[[", "]", "]]", "test"});
      if (!is_bracket) texts.push_back(variables_.tested(word.text));
    }
    bool wanted = true;
    while (!texts.empty() && texts[0] == "!") {
      wanted = !wanted;
      texts.erase(texts.begin());
    }
    const Truth result = holds(texts);
    return result ? Truth(*result == wanted) : Truth();
  }

  static Truth holds(const Words& texts) {
    if (texts.size() == 1) return !texts[0].empty();
    if (texts.size() == 2 && texts[0] == "-z") return texts[1].empty();
    if (texts.size() == 2 && texts[0] == "-n") return !texts[1].empty();
    if (texts.size() != 3) return {};
    const std::string& sign = texts[1];
    if (sign == "=" || sign == "==") return fnmatch(texts[2].c_str(), texts[0].c_str(), 0) == 0;
    if (sign == "!=") return fnmatch(texts[2].c_str(), texts[0].c_str(), 0) != 0;
    const auto none = [](const std::string&) { return std::optional<std::string>(); };
    const auto left = shell_sum(texts[0], none), right = shell_sum(texts[2], none);
    if (!left || !right) return {};
    if (sign == "-eq") return *left == *right;
    if (sign == "-ne") return *left != *right;
    if (sign == "-lt") return *left < *right;
    if (sign == "-le") return *left <= *right;
    if (sign == "-gt") return *left > *right;
    if (sign == "-ge") return *left >= *right;
    return {};
  }

  ShellScript script_;
  ShellVariables variables_;
  std::vector<Block> blocks_;
  std::vector<ShellDocument> documents_;
  int depth_ = 0;
};

}  // namespace

bool Launch::is_generation() const {
  return std::ranges::any_of(programs_of_generation, [&](std::string_view with) { return program.starts_with(with); });
}

ShellScript read_shell_script(std::string_view text) {
  std::string lines = with_placeholders(text);
  std::erase(lines, '\r');
  const auto control =
      std::ranges::find_if(lines, [](unsigned char c) { return (c < 0x20 && c != '\t' && c != '\n') || c == 0x7F; });
  TRIREME_CHECK(control == lines.end(), ConfigError, "the script has a control character, \\x{:02x}, in line {}",
                static_cast<unsigned char>(*control), 1 + std::count(lines.begin(), control, '\n'));
  return Interpreter().run(lines);
}

}  // namespace trireme::app::megatron
