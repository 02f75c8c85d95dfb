#pragma once

#include <functional>
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

/// Members of the JSON object that a task prints: texts and numbers.
using Figures = std::vector<std::pair<std::string, std::variant<std::string, std::int64_t, double>>>;

/// Texts of a task, and the figures of their scores.
struct ZeroShotTask {
  std::shared_ptr<const data::ScoredTexts> texts;
  std::function<Figures(std::span<const data::TextScore> scores)> figures;
};

/// Options of the zero-shot tasks.
struct ZeroShotOptions {
  std::optional<std::int64_t> overlapping_eval;
  std::optional<data::Detokenizer> detokenizer;  ///< empty: by the file's path
  bool strict_lambada = false;
  bool cut_long_examples = false;
  bool skip_bad_lines = false;

  void declare(Options& options);
  /// Throws ConfigError for a given option that `task` does not use.
  void check(const Options& options, EvalTask task) const;
};

/// Reads the file of a task. `bad_lines` collects the skipped lines. Throws IoError, or DataError that begins with the
/// file and the line, if an example or the file cannot be used.
ZeroShotTask read_zero_shot_task(EvalTask task, const std::string& path, const ZeroShotOptions& options,
                                 const data::Tokenizer& tokenizer, std::int64_t sequence_length,
                                 data::BadLines& bad_lines);

}  // namespace trireme::app
