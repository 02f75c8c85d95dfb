#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/app/commands/eval/eval_options.hpp"
#include "src/data/tasks/task_text.hpp"
#include "src/data/tasks/zero_shot/scored_texts.hpp"
#include "src/data/tasks/zero_shot/wikitext.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::app {

/// Members of the JSON object that a task prints: texts and numbers.
using Figures = std::vector<std::pair<std::string, std::variant<std::string, std::int64_t, double>>>;

/// Texts of a task, and the figures of their scores.
struct ZeroShotTask {
  std::shared_ptr<const data::ScoredTexts> texts;
  std::function<Figures(std::span<const data::TextScore> scores)> figures;
};

/// Reads the file of a task. `bad_lines` collects the skipped lines. Throws IoError, or DataError that begins with the
/// file and the line, if an example or the file cannot be used.
ZeroShotTask read_zero_shot_task(const EvalOptions& options, const data::Tokenizer& tokenizer,
                                 std::int64_t sequence_length, data::BadLines& bad_lines);

}  // namespace trireme::app
