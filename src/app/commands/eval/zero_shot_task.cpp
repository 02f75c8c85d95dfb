#include "src/app/commands/eval/zero_shot_task.hpp"

#include <algorithm>

#include "io/corpus/prepare_files.hpp"
#include "io/json/json_text.hpp"
#include "io/json/task_json.hpp"
#include "src/data/tasks/zero_shot/lambada.hpp"
#include "src/data/tasks/zero_shot/multiple_choice.hpp"
#include "src/data/tasks/zero_shot/wikitext.hpp"
#include "src/data/text/utf8.hpp"
#include "src/prepare/text_reader.hpp"

namespace trireme::app {
namespace {

using data::ScoredTexts;
using data::TextScore;

/// Runs `function`; prefixes the message of a DataError with `where`.
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
  options.check_utf8 = false;  // read_text checks it, with its own message
  return {io::prepare_files(), std::vector<std::string>{path}, options};
}

std::string read_text(const std::string& path) {
  prepare::TextReader reader = reader_of(path, prepare::TextFormat::text);
  std::string text;
  for (prepare::TextPiece piece; reader.next(piece);) text += piece.bytes;
  const std::size_t invalid = data::find_invalid_utf8(text);
  TRIREME_CHECK(invalid == text.size(), DataError,
                "{}:{}: byte {} of the file is not UTF-8: convert the file (iconv -f latin1 -t utf-8)", path,
                1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(invalid), '\n'), invalid);
  return text;
}

/// Calls `add(line, line_number, where)` for the lines of a file that are not blank.
template <class Add>
void for_each_line(const std::string& path, data::BadLines& bad_lines, const Add& add) {
  prepare::TextReader reader = reader_of(path, prepare::TextFormat::json_lines);
  for (prepare::TextPiece piece; reader.next(piece);) {
    const std::string where = fmt::format("{}:{}", path, piece.position);
    bad_lines.attempt([&] { add(piece.bytes, piece.position, where); });
  }
}

class WikiTextTask final : public ZeroShotTask {
 public:
  WikiTextTask(data::WikiText set, std::int64_t sequence_length, std::int64_t overlap)
      : set_(std::move(set)), sequence_length_(sequence_length), overlap_(overlap) {}
  const ScoredTexts& texts() const override { return set_.windows; }
  Figures figures(std::span<const TextScore> scores) const override {
    const data::WikiTextResult result = result_of(set_, scores);
    return {{"tokens", set_.windows.scored()},
            {"windows", set_.windows.size()},
            {"loss", result.loss.value},
            {"loss_standard_error", result.loss.standard_error},
            {"perplexity", result.perplexity},
            {"adjusted_perplexity", result.adjusted_perplexity},
            {"num_original_tokens", set_.original_tokens},
            {"num_tokenized_tokens", set_.tokenized_tokens},
            {"seq_length", sequence_length_},
            {"overlapping_eval", overlap_}};
  }

 private:
  data::WikiText set_;
  std::int64_t sequence_length_, overlap_;
};

class LambadaTask final : public ZeroShotTask {
 public:
  explicit LambadaTask(ScoredTexts examples) : examples_(std::move(examples)) {}
  const ScoredTexts& texts() const override { return examples_; }
  Figures figures(std::span<const TextScore> scores) const override {
    const data::LambadaResult result = result_of(examples_, scores);
    return {{"tokens", examples_.scored()},
            {"loss", result.loss.value},
            {"loss_standard_error", result.loss.standard_error},
            {"correct", result.correct},
            {"total", examples_.size()},
            {"accuracy", result.accuracy.value},
            {"accuracy_standard_error", result.accuracy.standard_error},
            {"unscored", result.unscored}};
  }

 private:
  ScoredTexts examples_;
};

class MultipleChoiceTask final : public ZeroShotTask {
 public:
  explicit MultipleChoiceTask(data::MultipleChoice set) : set_(std::move(set)) {}
  const ScoredTexts& texts() const override { return set_.texts(); }
  Figures figures(std::span<const TextScore> scores) const override {
    const data::MultipleChoice::Result result = set_.result(scores);
    return {{"tokens", set_.texts().scored()},
            {"choices", set_.texts().size()},
            {"loss", result.loss.value},
            {"loss_standard_error", result.loss.standard_error},
            {"correct", result.correct},
            {"correct_normalized", result.correct_normalized},
            {"total", set_.size()},
            {"accuracy", result.accuracy.value},
            {"accuracy_standard_error", result.accuracy.standard_error},
            {"accuracy_normalized", result.accuracy_normalized.value},
            {"accuracy_normalized_standard_error", result.accuracy_normalized.standard_error}};
  }

 private:
  data::MultipleChoice set_;
};

io::QuestionKeys keys_of(EvalTask task) {
  if (task == EvalTask::hellaswag) return {{"ctx"}, {"endings"}, {"label"}, {"activity_label", "ctx_a", "ctx_b"}};
  if (task == EvalTask::mmlu) return {{"question"}, {"choices"}, {"answer"}};
  return {{"ctx", "context", "question", "query"}, {"choices", "endings"}, {"label", "answer", "gold"}};
}

/// Returns the question of a task in the form that the model is asked.
data::ChoiceQuestion asked(EvalTask task, const data::ChoiceQuestion& question) {
  if (task == EvalTask::mmlu) return lettered(question);
  return question.parts.empty() ? question : joined_parts(question);
}

std::unique_ptr<ZeroShotTask> read_wikitext(const std::string& path, const ZeroShotOptions& options,
                                            const data::Tokenizer& tokenizer, std::int64_t sequence_length) {
  constexpr std::int64_t default_overlap = 32;
  const std::int64_t overlap = options.overlapping_eval.value_or(std::min(default_overlap, sequence_length));
  const data::Detokenizer detokenizer = options.detokenizer.value_or(data::detokenizer_of(path));
  const std::string text = read_text(path);
  return std::make_unique<WikiTextTask>(
      located(path, [&] { return make_wikitext(text, detokenizer, tokenizer, sequence_length, overlap); }),
      sequence_length, overlap);
}

}  // namespace

void ZeroShotOptions::declare(Options& options) {
  using data::Detokenizer;
  options.section("Zero-shot tasks");
  options.add("overlapping-eval", &overlapping_eval, "N",
              "WIKITEXT103: tokens from one window to the next. Each window after the first scores its last N tokens. "
              "The sequence length makes windows that do not overlap. Default 32.",
              at_least(0));
  options.add_choice<std::optional<Detokenizer>>(
      "detokenizer", &detokenizer,
      {{"auto", std::nullopt},
       {"none", Detokenizer::none},
       {"wikitext", Detokenizer::wikitext},
       {"ptb", Detokenizer::ptb},
       {"lambada", Detokenizer::lambada}},
      "WIKITEXT103: how to undo the spaces around punctuation; auto: as the first of 'ptb', 'wiki' and 'lambada' that "
      "the file's path contains says, else none.");
  options.add_flag("strict-lambada", &strict_lambada,
                   "LAMBADA: predict all tokens of the last word instead of the text's last token.");
  options.add_choice("long-examples", &cut_long_examples, {{"stop", false}, {"cut", true}},
                     "Examples longer than the sequence length: an error, or cut at the left.");
  options.add_choice("on-bad-line", &skip_bad_lines, {{"stop", false}, {"skip", true}},
                     "Lines without a usable example: an error, or left out and counted.");
}

void ZeroShotOptions::check(const Options& options, EvalTask task) const {
  const bool has_examples = task != EvalTask::perplexity && task != EvalTask::wikitext103;
  const auto check = [&](const char* name, bool is_used, const char* tasks) {
    TRIREME_CHECK(is_used || !options.given(name), ConfigError, "--{} goes with --task {} alone", name, tasks);
  };
  check("overlapping-eval", task == EvalTask::wikitext103, "WIKITEXT103");
  check("detokenizer", task == EvalTask::wikitext103, "WIKITEXT103");
  check("strict-lambada", task == EvalTask::lambada, "LAMBADA");
  check("long-examples", has_examples, "LAMBADA and tasks of multiple choice");
  check("on-bad-line", has_examples, "LAMBADA and tasks of multiple choice");
}

std::unique_ptr<ZeroShotTask> read_zero_shot_task(EvalTask task, const std::string& path,
                                                  const ZeroShotOptions& options, const data::Tokenizer& tokenizer,
                                                  std::int64_t sequence_length, data::BadLines& bad_lines) {
  if (task == EvalTask::wikitext103) return read_wikitext(path, options, tokenizer, sequence_length);
  const data::LengthLimit limit{sequence_length, options.cut_long_examples};
  std::unique_ptr<ZeroShotTask> result;
  if (task == EvalTask::lambada) {
    using data::LambadaTarget;
    const LambadaTarget target = options.strict_lambada ? LambadaTarget::last_word : LambadaTarget::last_token;
    ScoredTexts examples(tokenizer.end_of_document());
    for_each_line(path, bad_lines, [&](const std::string& line, std::int64_t number, const std::string& where) {
      const std::string text = io::json_text(line, "text", path, number);
      located(where, [&] { add_lambada(text, target, tokenizer, limit, examples); });
    });
    result = std::make_unique<LambadaTask>(std::move(examples));
  } else {
    data::MultipleChoice set(tokenizer);
    for_each_line(path, bad_lines, [&](const std::string& line, std::int64_t, const std::string& where) {
      const data::ChoiceQuestion question = io::json_question(line, keys_of(task), where);
      located(where, [&] { set.add(asked(task, question), limit); });
    });
    result = std::make_unique<MultipleChoiceTask>(std::move(set));
  }
  TRIREME_CHECK(result->texts().size() > 0, DataError, "{} has no example{}", path,
                bad_lines.count() > 0 ? fmt::format(" beside its {} bad lines, the first: {}", bad_lines.count(),
                                                    bad_lines.messages().front())
                                      : "");
  return result;
}

}  // namespace trireme::app
