#pragma once

#include <string>
#include <variant>
#include <vector>

#include "src/app/job.hpp"
#include "src/app/options/masking_options.hpp"
#include "src/app/run_config/problems.hpp"
#include "src/data/dataset/bert/bert_data.hpp"
#include "src/data/dataset/gpt_data.hpp"
#include "src/model/model_config.hpp"

namespace trireme::app {

/// Options of the samples of a model, by its family.
using SampleOptions = std::variant<data::GptDataOptions, data::BertDataOptions>;

/// Options of the corpora and their samples.
struct DataOptions {
  std::vector<std::string> path;
  std::string split = "969,30,1";
  data::SplitBy split_by = data::SplitBy::automatic;
  data::Sampling sampling = data::Sampling::shuffled;
  MaskingOptions masking;
  std::string cache_path;
  CorpusCheck check_level = CorpusCheck::sample;
  bool has_default_split = true;

  void declare(Options& options);
  /// `model` is empty where its options are wrong.
  void settle(const Options& options, const std::optional<model::ModelConfig>& model, Problems& problems);

  /// A corpus and its weight.
  struct WeightedPath {
    std::string path;
    double weight = 1;
  };
  /// Reads `path`. ConfigError where it is neither one corpus nor pairs of weight and corpus.
  std::vector<WeightedPath> corpora() const;
};

}  // namespace trireme::app
