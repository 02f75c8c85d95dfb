#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/app/options/options.hpp"
#include "src/data/tasks/bad_lines.hpp"
#include "src/data/tasks/zero_shot/detokenizer.hpp"
#include "src/data/tasks/zero_shot/scored_texts.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::app {

enum class EvalTask { perplexity, wikitext103, lambada, multiple_choice, hellaswag, mmlu };

/// Members of the JSON object that a task prints: a text, or a number, null if it is not finite.
using Figures = std::vector<std::pair<std::string, std::variant<std::string, std::int64_t, double>>>;

/// Texts of a task and what their scores mean.
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
  /// ConfigError if an option was given that `task` does not use.
  void check(const Options& options, EvalTask task) const;
};

/// Reads the file of a task, all of it. `bad_lines` notes the lines that are skipped. Throws IoError, or DataError that
/// begins with the file and the line, where an example or the full file cannot be used.
std::unique_ptr<ZeroShotTask> read_zero_shot_task(EvalTask task, const std::string& path,
                                                  const ZeroShotOptions& options, const data::Tokenizer& tokenizer,
                                                  std::int64_t sequence_length, data::BadLines& bad_lines);

}  // namespace trireme::app
