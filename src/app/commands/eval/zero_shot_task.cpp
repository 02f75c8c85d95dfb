#include "src/app/commands/eval/zero_shot_task.hpp"

#include <algorithm>

#include "io/corpus/prepare_files.hpp"
#include "io/json/json_text.hpp"
#include "io/json/task_json.hpp"
#include "src/base/utf8.hpp"
#include "src/data/tasks/zero_shot/lambada.hpp"
#include "src/data/tasks/zero_shot/multiple_choice.hpp"
#include "src/data/tasks/zero_shot/wikitext.hpp"
#include "src/prepare/text_reader.hpp"

namespace trireme::app {
namespace {

using data::ScoredTexts;
using data::TextScore;

/// Runs `function`, and prefixes the message of a DataError with `where`.
template <class Function>
auto located(const std::string& where, const Function& function) {
  try {
    return function();
  } catch (const DataError& error) {
    throw DataError("{}: {}", where, error.what());
  }
}

prepare::TextReader reader_of(const std::string& path, prepare::TextFormat format) {
  prepare::TextReaderOptions options;
  options.format = format;
  options.check_utf8 = false;  // checked by read_text, with its own message
  return {io::prepare_files(), std::vector<std::string>{path}, options};
}

std::string read_text(const std::string& path) {
  prepare::TextReader reader = reader_of(path, prepare::TextFormat::text);
  std::string text;
  for (prepare::TextPiece piece; reader.next(piece);) text += piece.bytes;
  const std::size_t invalid = find_invalid_utf8(text);
  TRIREME_CHECK(invalid == text.size(), DataError,
                "{}:{}: byte {} of the file is not UTF-8: convert the file (iconv -f latin1 -t utf-8)", path,
                1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(invalid), '\n'), invalid);
  return text;
}

/// Calls `add(line, line_number, where)` for each line of a file that is not blank.
template <class Add>
void for_each_line(const std::string& path, data::BadLines& bad_lines, const Add& add) {
  prepare::TextReader reader = reader_of(path, prepare::TextFormat::json_lines);
  for (prepare::TextPiece piece; reader.next(piece);) {
    const std::string where = fmt::format("{}:{}", path, piece.position);
    bad_lines.attempt([&] { add(piece.bytes, piece.position, where); });
  }
}

ZeroShotTask task_of(data::WikiText set, std::int64_t sequence_length, std::int64_t overlap) {
  const auto shared = std::make_shared<const data::WikiText>(std::move(set));
  return {std::shared_ptr<const ScoredTexts>(shared, &shared->windows), [=](std::span<const TextScore> scores) {
            const data::WikiTextResult result = result_of(*shared, scores);
            return Figures{{"tokens", shared->windows.scored()},
                           {"windows", shared->windows.size()},
                           {"loss", result.loss.value},
                           {"loss_standard_error", result.loss.standard_error},
                           {"perplexity", result.perplexity},
                           {"adjusted_perplexity", result.adjusted_perplexity},
                           {"num_original_tokens", shared->original_tokens},
                           {"num_tokenized_tokens", shared->tokenized_tokens},
                           {"seq_length", sequence_length},
                           {"overlapping_eval", overlap}};
          }};
}

ZeroShotTask lambada_task_of(ScoredTexts set) {
  const auto examples = std::make_shared<const ScoredTexts>(std::move(set));
  return {examples, [=](std::span<const TextScore> scores) {
            const data::LambadaResult result = result_of(*examples, scores);
            return Figures{{"tokens", examples->scored()},
                           {"loss", result.loss.value},
                           {"loss_standard_error", result.loss.standard_error},
                           {"correct", result.correct},
                           {"total", examples->size()},
                           {"accuracy", result.accuracy.value},
                           {"accuracy_standard_error", result.accuracy.standard_error},
                           {"unscored", result.unscored}};
          }};
}

ZeroShotTask task_of(data::MultipleChoice choices) {
  const auto set = std::make_shared<const data::MultipleChoice>(std::move(choices));
  return {std::shared_ptr<const ScoredTexts>(set, &set->texts()), [=](std::span<const TextScore> scores) {
            const data::MultipleChoice::Result result = set->result(scores);
            return Figures{{"tokens", set->texts().scored()},
                           {"choices", set->texts().size()},
                           {"loss", result.loss.value},
                           {"loss_standard_error", result.loss.standard_error},
                           {"correct", result.correct},
                           {"correct_normalized", result.correct_normalized},
                           {"total", set->size()},
                           {"accuracy", result.accuracy.value},
                           {"accuracy_standard_error", result.accuracy.standard_error},
                           {"accuracy_normalized", result.accuracy_normalized.value},
                           {"accuracy_normalized_standard_error", result.accuracy_normalized.standard_error}};
          }};
}

io::QuestionKeys keys_of(EvalTask task) {
  if (task == EvalTask::hellaswag) return {{"ctx"}, {"endings"}, {"label"}, {"activity_label", "ctx_a", "ctx_b"}};
  if (task == EvalTask::mmlu) return {{"question"}, {"choices"}, {"answer"}};
  return {{"ctx", "context", "question", "query"}, {"choices", "endings"}, {"label", "answer", "gold"}};
}

/// Returns the question of a task in the form that the model continues.
data::ChoiceQuestion asked(EvalTask task, const data::ChoiceQuestion& question) {
  if (task == EvalTask::mmlu) return lettered(question);
  return question.parts.empty() ? question : joined_parts(question);
}

ZeroShotTask read_wikitext(const EvalOptions& options, const data::Tokenizer& tokenizer, std::int64_t sequence_length) {
  const std::string& path = options.data_path;
  constexpr std::int64_t default_overlap = 32;
  const std::int64_t overlap = options.overlapping_eval.value_or(std::min(default_overlap, sequence_length));
  const data::Detokenizer detokenizer = options.detokenizer.value_or(data::detokenizer_of(path));
  const std::string text = read_text(path);
  return task_of(located(path, [&] { return make_wikitext(text, detokenizer, tokenizer, sequence_length, overlap); }),
                 sequence_length, overlap);
}

}  // namespace

ZeroShotTask read_zero_shot_task(const EvalOptions& options, const data::Tokenizer& tokenizer,
                                 std::int64_t sequence_length, data::BadLines& bad_lines) {
  if (options.task == EvalTask::wikitext103) return read_wikitext(options, tokenizer, sequence_length);
  const std::string& path = options.data_path;
  const data::LengthLimit limit{sequence_length, options.cut_long_examples};
  ZeroShotTask result;
  if (options.task == EvalTask::lambada) {
    using data::LambadaTarget;
    const LambadaTarget target = options.strict_lambada ? LambadaTarget::last_word : LambadaTarget::last_token;
    ScoredTexts examples(tokenizer.end_of_document());
    for_each_line(path, bad_lines, [&](const std::string& line, std::int64_t number, const std::string& where) {
      const std::string text = io::json_text(line, "text", path, number);
      located(where, [&] { add_lambada(text, target, tokenizer, limit, examples); });
    });
    result = lambada_task_of(std::move(examples));
  } else {
    data::MultipleChoice set(tokenizer);
    for_each_line(path, bad_lines, [&](const std::string& line, std::int64_t, const std::string& where) {
      const data::ChoiceQuestion question = io::json_question(line, keys_of(options.task), where);
      located(where, [&] { set.add(asked(options.task, question), limit); });
    });
    result = task_of(std::move(set));
  }
  TRIREME_CHECK(result.texts->size() > 0, DataError, "{} has no example{}", path,
                bad_lines.count() > 0 ? fmt::format(" besides its {} bad lines, the first: {}", bad_lines.count(),
                                                    bad_lines.messages().front())
                                      : "");
  return result;
}

}  // namespace trireme::app
