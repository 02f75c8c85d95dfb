#pragma once

#include <optional>
#include <vector>

#include "src/app/commands/train/train_plan.hpp"
#include "src/app/job/prompt_tokens.hpp"
#include "src/infer/generation.hpp"

namespace trireme::app {

/// Continuations of fixed prompts by a model in training. They depend on the weights and the run's seed, not on the
/// grid.
class TrainingSamples {
 public:
  /// Reads the prompts of --sample-prompts: lines of JSON as for `trireme generate --prompts` or, by the file's name,
  /// of text. Throws DataError for one that the model cannot continue. Collective.
  TrainingSamples(const Job& job, const RunConfig& config, const TrainPlan& plan);

  /// Continues the prompts and logs the texts. Returns nothing, after a warning, if the model's output is not finite.
  /// Collective.
  std::optional<train::SampleRecord> take(train::ParallelModel& model, Communicator& world,
                                          const train::Progress& progress) const;

 private:
  /// Returns the text of tokens; bytes that are not UTF-8 become U+FFFD.
  std::string decode(const std::vector<std::int32_t>& tokens, bool continues_text) const;
  void add(std::string_view line, bool is_json, const std::string& where, const model::ModelConfig& model);

  std::int64_t max_new_tokens_;
  infer::SamplingOptions sampling_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::vector<infer::Prompt> prompts_;
  std::vector<std::string> texts_;  // texts of the prompts
};

}  // namespace trireme::app
