#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/app/options/options.hpp"
#include "src/data/tasks/task_text.hpp"
#include "src/data/tasks/zero_shot/scored_texts.hpp"
#include "src/data/tasks/zero_shot/wikitext.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::app {

enum class EvalTask { perplexity, wikitext103, lambada, multiple_choice, hellaswag, mmlu };

/// Members of the JSON object that a task prints: a text, or a number, null if it is not finite.
using Figures = std::vector<std::pair<std::string, std::variant<std::string, std::int64_t, double>>>;

/// Texts of a task, and the figures of their scores.
class ZeroShotTask {
 public:
  virtual ~ZeroShotTask() = default;
  virtual const data::ScoredTexts& texts() const = 0;
  virtual Figures figures(std::span<const data::TextScore> scores) const = 0;
};

/// Options of the tasks that need no training.
struct ZeroShotOptions {
  std::optional<std::int64_t> overlapping_eval;
  std::optional<data::Detokenizer> detokenizer;  ///< none given: by the file's path
  bool strict_lambada = false;
  bool cut_long_examples = false;
  bool skip_bad_lines = false;

  void declare(Options& options);
  /// Throws ConfigError if an option was given that `task` does not use.
  void check(const Options& options, EvalTask task) const;
};

/// Reads the complete file of a task. `bad_lines` collects the skipped lines. Throws IoError, or DataError that
/// begins with the file and the line, if an example or the file cannot be used.
std::unique_ptr<ZeroShotTask> read_zero_shot_task(EvalTask task, const std::string& path,
                                                  const ZeroShotOptions& options, const data::Tokenizer& tokenizer,
                                                  std::int64_t sequence_length, data::BadLines& bad_lines);

}  // namespace trireme::app
