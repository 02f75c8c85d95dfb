#include "src/app/commands/eval/eval_options.hpp"

#include <utility>

#include "src/app/options/number_list.hpp"
#include "src/app/run_config/execution_options.hpp"
#include "src/base/check.hpp"

namespace trireme::app {
namespace {

std::vector<std::pair<std::string, EvalTask>> tasks() {
  return {{"perplexity", EvalTask::perplexity}, {"WIKITEXT103", EvalTask::wikitext103},
          {"LAMBADA", EvalTask::lambada},       {"MULTIPLE_CHOICE", EvalTask::multiple_choice},
          {"HELLASWAG", EvalTask::hellaswag},   {"MMLU", EvalTask::mmlu}};
}

}  // namespace

std::string name_of(EvalTask task) {
  for (const auto& [name, named] : tasks()) {
    if (named == task) return name;
  }
  return "";
}

void EvalOptions::declare(Options& options) {
  options.section("Task");
  options.add_choice("task", &task, tasks(),
                     "perplexity: of every token of a corpus but the first. WIKITEXT103: perplexity of a text in "
                     "overlapping windows, also adjusted to its words. LAMBADA: accuracy of the last token or word "
                     "of texts. MULTIPLE_CHOICE: accuracy of the choice of the largest summed log-probability, and "
                     "of the largest one per character; HELLASWAG and MMLU: the same for their files.");
  options.add("data-path", &data_path, "FILE",
              "perplexity: corpus of the model's tokenizer. WIKITEXT103: text, UTF-8. LAMBADA: JSON lines with "
              "\"text\". MULTIPLE_CHOICE: JSON lines with \"question\" (or \"ctx\", \"context\", \"query\"), "
              "\"choices\" (or \"endings\") and \"answer\" (or \"label\", \"gold\"), a number from 0 or a letter. "
              "HELLASWAG: \"activity_label\", \"ctx_a\", \"ctx_b\" or \"ctx\" alone, \"endings\", \"label\". MMLU: "
              "\"question\", \"choices\", \"answer\".");
  options.add("seq-length", &sequence_length, "N",
              "Tokens of a window, or of the longest example; default that of the training.", countable());
  options.add("micro-batch-size", &micro_batch_size, "N", "Windows or examples that one rank works on at a time.",
              countable());
  options.add("logits-file", &logits_file, "FILE",
              "perplexity: write the logits of the --logits-samples to this HDF5 file, in groups sample-N: logits "
              "[positions, vocabulary], tokens and labels [positions].");
  options.add("logits-samples", &logits_samples, "N...",
              "Numbers of the windows whose logits are written, from 0; default 0.");
  declare_cross_entropy_chunks(options, &cross_entropy_chunks);
  zero_shot.declare(options);
  model.declare(options);
  options.require("data-path");
}

std::vector<std::int64_t> EvalOptions::checked_logits_samples() const {
  TRIREME_CHECK(logits_file.empty() || task == EvalTask::perplexity, ConfigError,
                "--logits-file goes with --task perplexity alone: only its windows have numbers");
  TRIREME_CHECK(!logits_file.empty() || logits_samples.empty(), ConfigError, "--logits-samples needs --logits-file");
  if (logits_samples.empty()) return {0};
  return number_list("--logits-samples", logits_samples, 0);
}

}  // namespace trireme::app
