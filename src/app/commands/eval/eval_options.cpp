#include "src/app/commands/eval/eval_options.hpp"

#include <algorithm>

#include "src/app/run_config/execution_options.hpp"
#include "src/base/check.hpp"

namespace trireme::app {
namespace {

constexpr Choice<EvalTask> tasks[] = {
    {"perplexity", EvalTask::perplexity}, {"WIKITEXT103", EvalTask::wikitext103},
    {"LAMBADA", EvalTask::lambada},       {"MULTIPLE_CHOICE", EvalTask::multiple_choice},
    {"HELLASWAG", EvalTask::hellaswag},   {"MMLU", EvalTask::mmlu}};

}  // namespace

std::string_view name_of(EvalTask task) { return std::ranges::find(tasks, task, &Choice<EvalTask>::value)->name; }

void EvalOptions::declare(Options& options) {
  options.section("Task");
  options.add_choice("task", &task, tasks,
                     "perplexity: of every token of a corpus except the first. WIKITEXT103: perplexity of a text in "
                     "overlapping windows, also per word of the original. LAMBADA: accuracy of the last token or word "
                     "of texts. MULTIPLE_CHOICE: accuracy of the choice with the largest summed log-probability, and "
                     "with the largest per character; HELLASWAG and MMLU: the same for their files.");
  options.add("data-path", &data_path, "FILE",
              "perplexity: corpus of the model's tokenizer. WIKITEXT103: text, UTF-8. LAMBADA: JSON lines with "
              "\"text\". MULTIPLE_CHOICE: JSON lines with \"question\" (or \"ctx\", \"context\", \"query\"), "
              "\"choices\" (or \"endings\") and \"answer\" (or \"label\", \"gold\"), a number from 0 or a letter. "
              "HELLASWAG: \"activity_label\", \"ctx_a\", \"ctx_b\" or only \"ctx\", \"endings\", \"label\". MMLU: "
              "\"question\", \"choices\", \"answer\".");
  options.add("seq-length", &sequence_length, "N",
              "Tokens of a window, or of the longest example; default that of training.", countable());
  options.add("micro-batch-size", &micro_batch_size, "N", "Windows or examples that one rank processes at a time.",
              countable());
  options.add("logits-file", &logits_file, "FILE",
              "perplexity: write the logits of the --logits-samples to this HDF5 file, in groups sample-N: logits "
              "[positions, vocabulary], tokens and labels [positions].");
  options.add("logits-samples", &logits_samples, "N...",
              "Numbers of the windows whose logits are written, counted from 0.", at_least(0));
  declare_cross_entropy_chunks(options, &cross_entropy_chunks);
  options.section("Zero-shot tasks");
  options.add("overlapping-eval", &overlapping_eval, "N",
              "WIKITEXT103: stride of the windows in tokens. Each window after the first scores its last N tokens. A "
              "stride of the sequence length makes windows that do not overlap. Default 32.",
              at_least(0));
  options.add_choice<std::optional<data::Detokenizer>>(
      "detokenizer", &detokenizer,
      {{"auto", std::nullopt},
       {"none", data::Detokenizer::none},
       {"wikitext", data::Detokenizer::wikitext},
       {"ptb", data::Detokenizer::ptb},
       {"lambada", data::Detokenizer::lambada}},
      "WIKITEXT103: how to undo the spaces around punctuation; auto: by the first of 'ptb', 'wiki' and 'lambada' in "
      "the file's path, else none.");
  options.add_flag("strict-lambada", &strict_lambada,
                   "LAMBADA: predict all tokens of the last word instead of the text's last token.");
  options.add_choice("long-examples", &cut_long_examples, {{"stop", false}, {"cut", true}},
                     "Examples longer than the sequence length: an error, or cut on the left.");
  options.add_choice("on-bad-line", &skip_bad_lines, {{"stop", false}, {"skip", true}},
                     "Lines without a usable example: an error, or skipped and counted.");
  model.declare(options);
  options.require({"data-path"});
}

void EvalOptions::check(const Options& options) const {
  const bool has_examples = task != EvalTask::perplexity && task != EvalTask::wikitext103;
  const auto check_use = [&](const char* name, bool is_used, const char* tasks) {
    TRIREME_CHECK(is_used || !options.given(name), ConfigError, "--{} needs --task {}", name, tasks);
  };
  check_use("overlapping-eval", task == EvalTask::wikitext103, "WIKITEXT103");
  check_use("detokenizer", task == EvalTask::wikitext103, "WIKITEXT103");
  check_use("strict-lambada", task == EvalTask::lambada, "LAMBADA");
  check_use("long-examples", has_examples, "LAMBADA or a task of multiple choice");
  check_use("on-bad-line", has_examples, "LAMBADA or a task of multiple choice");
  TRIREME_CHECK(logits_file.empty() || task == EvalTask::perplexity, ConfigError,
                "--logits-file needs --task perplexity: only its windows have numbers");
  TRIREME_CHECK(!logits_file.empty() || !options.given("logits-samples"), ConfigError,
                "--logits-samples needs --logits-file");
}

}  // namespace trireme::app
