#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/app/job/saved_model.hpp"
#include "src/app/options/options.hpp"
#include "src/data/tasks/zero_shot/wikitext.hpp"

namespace trireme::app {

enum class EvalTask { perplexity, wikitext103, lambada, multiple_choice, hellaswag, mmlu };

/// Options of `trireme eval`.
struct EvalOptions {
  EvalTask task = EvalTask::perplexity;
  std::string data_path;
  std::int64_t micro_batch_size = 1;
  std::optional<std::int64_t> sequence_length;
  std::string logits_file;
  std::vector<std::int64_t> logits_samples = {0};
  std::int64_t cross_entropy_chunks = 1;
  std::optional<std::int64_t> overlapping_eval;
  std::optional<data::Detokenizer> detokenizer;  ///< empty: by the file's path
  bool strict_lambada = false;
  bool cut_long_examples = false;
  bool skip_bad_lines = false;
  SavedModelOptions model;

  void declare(Options& options);
  /// Throws ConfigError for options that the task does not use.
  void check(const Options& options) const;
};

/// Returns "LAMBADA".
std::string_view name_of(EvalTask task);

}  // namespace trireme::app
