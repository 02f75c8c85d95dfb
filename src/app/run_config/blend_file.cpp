#include "src/app/run_config/blend_file.hpp"

#include <algorithm>
#include <cmath>

#include "src/app/manual/terminal_text.hpp"
#include "src/app/run_config/batch_options.hpp"
#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme::app {
namespace {

constexpr std::string_view space = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(space), text.size());
  return text.substr(begin, text.find_last_not_of(space) + 1 - begin);
}

/// Removes the first word of `rest`, and the space after it, and returns it.
std::string_view take_word(std::string_view& rest) {
  const std::string_view word = rest.substr(0, rest.find_first_of(space));
  rest = trimmed(rest.substr(word.size()));
  return word;
}

class BlendParser {
 public:
  explicit BlendParser(std::string path) : path_(std::move(path)) {}

  std::vector<BlendFileStage> parse(std::string_view text) {
    constexpr std::string_view mark = "\xEF\xBB\xBF";
    if (text.starts_with(mark)) text.remove_prefix(mark.size());
    constexpr std::string_view hdf5 = "\x89HDF\r\n\x1A\n";
    expect(!text.starts_with(hdf5), "this is a corpus: give it by --data-path, or name it in a file of text");
    for (const std::string_view line : split(text, '\n')) {
      ++line_;
      const std::string_view content = trimmed(line);
      if (!content.empty() && content.front() != '#') add(content);
    }
    require_corpora();
    return std::move(stages_);
  }

 private:
  template <class... Args>
  void expect(bool holds, fmt::format_string<Args...> problem, Args&&... args) const {
    TRIREME_CHECK(holds, DataError, "--blend {}:{}: {}", path_, std::max<std::int64_t>(line_, 1),
                  fmt::format(problem, std::forward<Args>(args)...));
  }

  void add(std::string_view line) {
    std::string_view rest = line;
    const std::string_view word = take_word(rest);
    if (word == "from" && !rest.empty()) return begin_stage(line, rest);
    WeightedPath corpus{std::string(line)};
    const std::optional<double> number = parse_number<double>(word);
    const bool is_like_one = word.find_first_not_of("+-.,0123456789eE%") == word.npos;
    expect(number || rest.empty() || !is_like_one, "'{}' is not a number; give 'WEIGHT CORPUS' or 'N epochs CORPUS'",
           printable(word));
    if (number && !rest.empty()) {
      std::string_view after = rest;
      const std::string_view unit = take_word(after);
      const bool has_epochs = (unit == "epochs" || unit == "epoch") && !after.empty();
      if (has_epochs) {
        corpus = {std::string(after), {}, *number};
      } else {
        corpus = {std::string(rest), *number};
      }
      expect(std::isfinite(*number) && *number > 0, "'{}' must be a positive number", word);
    }
    if (stages_.empty()) stages_.emplace_back();
    std::vector<WeightedPath>& corpora = stages_.back().corpora;
    expect(std::ranges::find(corpora, corpus.path, &WeightedPath::path) == corpora.end(),
           "the corpus {} occurs twice in a stage", printable(corpus.path));
    expect(corpora.empty() || corpora.front().weight.has_value() == corpus.weight.has_value(),
           "a stage has either a weight for each corpus, or none: then epochs, 1 unless given");
    corpora.push_back(std::move(corpus));
  }

  void begin_stage(std::string_view line, std::string_view rest) {
    using Unit = BlendFileStage::Unit;
    constexpr std::pair<std::string_view, Unit> units[] = {
        {"sample", Unit::samples}, {"step", Unit::steps}, {"token", Unit::tokens}};
    const std::string_view word = take_word(rest);
    const auto unit = std::ranges::find(units, word, &std::pair<std::string_view, Unit>::first);
    expect(unit != std::end(units) && !rest.empty(), "'{}' is not 'from step N', 'from sample N' or 'from token N'",
           shortened(line));
    BlendFileStage stage{.begin = 0, .unit = unit->second, .corpora = {}};
    try {
      stage.begin = scaled_number(std::string(rest));
    } catch (const ConfigError& error) {
      expect(false, "{}", error.what());
    }
    if (stages_.empty()) {
      expect(stage.begin == 0, "the first stage begins at {} 0", word);
    } else {
      require_corpora();
    }
    stages_.push_back(std::move(stage));
  }

  void require_corpora() const {
    expect(!stages_.empty() && !stages_.back().corpora.empty(), "no corpus is named; give a line 'WEIGHT CORPUS' each");
  }

  std::string path_;
  std::int64_t line_ = 0;
  std::vector<BlendFileStage> stages_;
};

}  // namespace

std::vector<BlendFileStage> parse_blend(std::string_view text, const std::string& path) {
  return BlendParser(path).parse(text);
}

}  // namespace trireme::app
