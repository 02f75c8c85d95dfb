#include "src/app/commands/eval/zero_shot_task.hpp"

#include <algorithm>

#include "io/json/json_text.hpp"
#include "src/app/commands/eval/task_file.hpp"
#include "src/data/tasks/zero_shot/lambada.hpp"

namespace trireme::app {
namespace {

using data::ScoredTexts;
using data::TextScore;

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

ZeroShotTask read_wikitext(const EvalOptions& options, const data::Tokenizer& tokenizer, std::int64_t sequence_length) {
  const std::string& path = options.data_path;
  constexpr std::int64_t default_overlap = 32;
  const std::int64_t overlap = options.overlapping_eval.value_or(std::min(default_overlap, sequence_length));
  const data::Detokenizer detokenizer = options.detokenizer.value_or(data::detokenizer_of(path));
  const std::string text = read_text_file(path);
  return task_of(located(path, [&] { return make_wikitext(text, detokenizer, tokenizer, sequence_length, overlap); }),
                 sequence_length, overlap);
}

}  // namespace

ZeroShotTask read_zero_shot_task(const EvalOptions& options, const data::Tokenizer& tokenizer,
                                 std::int64_t sequence_length, data::BadLines& bad_lines) {
  if (options.task == EvalTask::wikitext103) return read_wikitext(options, tokenizer, sequence_length);
  using data::LambadaTarget;
  const std::string& path = options.data_path;
  const LambadaTarget target = options.strict_lambada ? LambadaTarget::last_word : LambadaTarget::last_token;
  const data::LengthLimit limit{sequence_length, options.cut_long_examples.value_or(false)};
  ScoredTexts examples(tokenizer.end_of_document());
  for_each_json_line(path, bad_lines, [&](const std::string& line, std::int64_t number, const std::string& where) {
    const std::string text = io::json_text(line, "text", path, number);
    located(where, [&] { add_lambada(text, target, tokenizer, limit, examples); });
  });
  ZeroShotTask result = lambada_task_of(std::move(examples));
  TRIREME_CHECK(result.texts->size() > 0, DataError, "{} has no example{}", path,
                bad_lines.count() > 0 ? fmt::format(" besides its {} bad lines, the first: {}", bad_lines.count(),
                                                    bad_lines.messages().front())
                                      : "");
  return result;
}

}  // namespace trireme::app
