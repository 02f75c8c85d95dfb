#include "src/app/commands/eval/eval_options.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "src/app/options/nearest_name.hpp"
#include "src/app/run_config/execution_options.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::app {
namespace {

constexpr Choice<EvalTask> single_tasks[] = {
    {"perplexity", EvalTask::perplexity}, {"WIKITEXT103", EvalTask::wikitext103}, {"LAMBADA", EvalTask::lambada}};

std::vector<std::string> benchmark_names() {
  std::vector<std::string> names;
  for (const data::Benchmark& benchmark : data::benchmarks()) names.emplace_back(benchmark.name);
  return names;
}

/// Returns the names of all tasks.
std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const Choice<EvalTask>& task : single_tasks) names.emplace_back(task.name);
  for (const std::string_view task : train::task_names()) names.emplace_back(task);
  std::ranges::move(benchmark_names(), std::back_inserter(names));
  return names;
}

}  // namespace

void EvalOptions::declare(Options& options) {
  options.section("Task");
  options.add(
      "task", &tasks, "NAME,...",
      "perplexity: of every token of a corpus except the first. WIKITEXT103: perplexity of a text in overlapping "
      "windows, also per word of the original. LAMBADA: accuracy of the last token or word of texts. Or several, "
      "separated by commas, of those in lm-eval's definition: hellaswag, arc_easy, arc_challenge, piqa, "
      "winogrande, boolq, openbookqa, mmlu, lambada_openai, lambada_standard, wikitext; and multiple_choice. Or the "
      "task of a fine-tuned model: " +
          task_list() + ".");
  options.add(
      "data-path", &data_paths, "FILE",
      "perplexity: corpus of the model's tokenizer. WIKITEXT103: text, UTF-8. LAMBADA: JSON lines with "
      "\"text\". Tasks in lm-eval's definition: the published file, or a folder of the data set; for several "
      "tasks a folder with one for each. multiple_choice: JSON lines with \"question\" (or \"ctx\", "
      "\"context\", \"query\"), \"choices\" (or \"endings\") and \"answer\" (or \"label\", \"gold\"), a "
      "number from 0 or a letter. Tasks of fine-tuned models: as finetune's --test-data; each file or folder keeps "
      "its own figures.");
  options.add("output", &output, "FILE",
              "Tasks in lm-eval's definition: write the results in lm-eval's layout of JSON.");
  options.add("seq-length", &sequence_length, "N",
              "Tokens of a window, or of the longest example; default that of training.", countable());
  options.add("micro-batch-size", &micro_batch_size, "N", "Windows or examples that one rank processes at a time.",
              countable());
  options.add("logits-file", &logits_file, "FILE",
              "perplexity: write the logits of the --logits-samples to this HDF5 file, in groups sample-N: logits "
              "[positions, vocabulary], tokens and labels [positions].");
  options.add("logits-samples", &logits_samples, "N",
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
  options.add_choice<std::optional<bool>>("long-examples", &cut_long_examples,
                                          {{"auto", std::nullopt}, {"stop", false}, {"cut", true}},
                                          "Examples longer than the sequence length: an error, or cut on the left; "
                                          "auto: cut for the tasks of lm-eval, which "
                                          "cuts them.");
  options.add_choice("on-bad-line", &skip_bad_lines, {{"stop", false}, {"skip", true}},
                     "Lines without a usable example: an error, or skipped and counted.");
  benchmark.declare(options);
  options.section("Fine-tuned models");
  fine_tuned.declare_answers(options);
  options.add("ensemble", &ensemble, "DIR",
              "Further models, fine-tuned separately: the figures are those of all models' averaged probabilities or "
              "values.");
  model.declare(options);
  options.require({"data-path"});
}

void EvalOptions::check(const Options& options) {
  const auto names = split(tasks, ',');
  const auto single = std::ranges::find(single_tasks, std::string_view(tasks), &Choice<EvalTask>::name);
  const std::vector<std::string_view> fine_tuning = train::task_names();
  const auto kind = std::ranges::find(fine_tuning, tasks);
  if (single != std::end(single_tasks)) {
    task = single->value;
  } else if (kind != fine_tuning.end()) {
    task = EvalTask::fine_tuned;
    fine_tuned.task.name = *kind;
    fine_tuned.skip_bad_lines = skip_bad_lines;
  } else {
    task = EvalTask::benchmarks;
    const bool are_several = names.size() > 1;
    const std::vector<std::string> known = are_several ? benchmark_names() : task_names();
    TRIREME_CHECK(!names.empty(), ConfigError, "--task is empty: it is one of {}", fmt::join(known, ", "));
    for (const std::string_view name : names) {
      const data::Benchmark* const benchmark = data::find_benchmark(name);
      TRIREME_CHECK(benchmark != nullptr, ConfigError, "--task {} is not {}{}{}", name,
                    are_several ? "a task that goes together with others. Give each task once, of " : "one of ",
                    fmt::join(known, ", "), suggestion(std::string(name), known));
      TRIREME_CHECK(std::ranges::count(names, benchmark, data::find_benchmark) == 1, ConfigError,
                    "--task has {} twice: leave one out", benchmark->name);
      benchmarks.emplace_back(name);
    }
  }
  TRIREME_CHECK(data_paths.size() == 1 || task == EvalTask::fine_tuned, ConfigError,
                "--data-path takes one file or folder for --task {}, not {} and {}", tasks, data_paths.at(0),
                data_paths.at(1));
  data_path = data_paths.front();
  const bool has_examples = task == EvalTask::lambada || task == EvalTask::benchmarks;
  const auto check_use = [&](const char* name, bool is_used, const std::string& users) {
    TRIREME_CHECK(is_used || !options.given(name), ConfigError, "--{} needs --task {}", name, users);
  };
  check_use("overlapping-eval", task == EvalTask::wikitext103, "WIKITEXT103");
  check_use("detokenizer", task == EvalTask::wikitext103, "WIKITEXT103");
  check_use("strict-lambada", task == EvalTask::lambada, "LAMBADA");
  check_use("long-examples", has_examples, "LAMBADA or a task in lm-eval's definition");
  check_use("on-bad-line", has_examples || task == EvalTask::fine_tuned, "LAMBADA, or a task of examples");
  for (const char* name : squad_options) {
    check_use(name, task == EvalTask::fine_tuned && fine_tuned.task.is_squad(), "SQUAD");
  }
  for (const char* name : {"predictions-file", "ensemble"}) {
    check_use(name, task == EvalTask::fine_tuned, task_list());
  }
  check_use("cross-entropy-chunks", task != EvalTask::fine_tuned, "of tokens: a task's head has no vocabulary");
  for (const char* name : {"num-fewshot", "fewshot-data", "fewshot-seed", "limit", "output"}) {
    check_use(name, task == EvalTask::benchmarks, "with a task in lm-eval's definition");
  }
  TRIREME_CHECK(benchmark.shot_data.empty() || benchmarks.size() == 1, ConfigError,
                "--fewshot-data is for one task. Give a folder with the data of each as --data-path");
  TRIREME_CHECK(logits_file.empty() || task == EvalTask::perplexity, ConfigError,
                "--logits-file needs --task perplexity: only its windows have numbers");
  TRIREME_CHECK(!logits_file.empty() || !options.given("logits-samples"), ConfigError,
                "--logits-samples needs --logits-file");
}

}  // namespace trireme::app
