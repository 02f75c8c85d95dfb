#pragma once

#include <array>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "src/app/options/fim_options.hpp"
#include "src/app/options/named_tokenizer.hpp"
#include "src/app/options/problems.hpp"
#include "src/app/run_config/blend_file.hpp"
#include "src/data/dataset/bert/bert_data.hpp"
#include "src/data/dataset/gpt_data.hpp"
#include "src/model/model_config.hpp"
#include "src/train/train_options.hpp"

namespace trireme::app {

/// Options of the samples of a model, by its family.
using SampleOptions = std::variant<data::GptDataOptions, data::BertDataOptions>;

/// Part of a corpus that is verified against its digests before use. The ranks share the work. `sample` is 32 blocks of
/// a million tokens, chosen by the seed.
enum class CorpusCheck { none, sample, full };

/// Options of BERT's samples.
struct MaskingOptions {
  double mask_probability = 0.15;
  double short_sequence_probability = 0.1;

  void declare(Options& options);
};

/// Declares --split-by.
void add_split_by(Options& options, data::SplitBy* by);

/// Options of the corpora and their samples.
struct DataOptions {
  std::vector<std::string> path;
  std::string blend;  ///< file of the training corpora, instead of `path` and `train_path`
  std::vector<std::string> train_path, valid_path, test_path;  ///< instead of `path`, one per split
  std::vector<std::string> valid_set_words;                    ///< as given: NAME=FILE ...
  bool valid_sets_split = false;                               ///< these are only the validation split of their files
  bool valid_apart = false;                                    ///< each corpus of `valid_path` is a validation set
  std::vector<std::string> valid_names;                        ///< names of these
  NamedTokenizer tokenizer;
  bool mock = false;  ///< synthetic tokens instead
  std::string split = "969,30,1";
  data::SplitBy split_by = data::SplitBy::automatic;
  data::Sampling sampling = data::Sampling::shuffled;
  data::Sampling loader = data::Sampling::shuffled;  ///< part of `sampling`, once settled
  train::DocumentOptions documents;
  bool packed_apart = true;  ///< conversations that share a sample see nothing of each other
  MaskingOptions masking;
  FillInMiddleOptions fim;
  std::string cache_path;
  CorpusCheck check_level = CorpusCheck::sample;
  bool has_default_split = true;

  void declare(Options& options);
  /// `model` is empty if its options are wrong.
  void settle(const Options& options, const std::optional<model::ModelConfig>& model, Problems& problems);

  /// Corpora of a split, or of a validation set, instead of a share of the training corpora.
  struct SplitPaths {
    data::Split split = data::Split::valid;
    std::string set;  ///< name of a validation set
    std::vector<WeightedPath> corpora;
  };
  /// Returns whether each split has its own corpora, or none.
  bool has_own_splits() const {
    return !train_path.empty() || (!blend.empty() && (!valid_path.empty() || !test_path.empty()));
  }
  /// Returns the shares of the splits in the training corpora.
  std::array<double, 3> fractions() const { return data::parse_split(has_own_splits() ? "1" : split); }
  /// Reads the stages of the training corpora: `path` or `train_path`, one stage, or the file `blend`. Throws
  /// ConfigError if it is neither only corpora nor pairs of weight and corpus, IoError and DataError for the file.
  std::vector<BlendFileStage> stages() const;
  /// Likewise `valid_path`, `test_path`, and `valid_set_words`.
  std::vector<SplitPaths> other_corpora() const;
  /// Returns the files that all these options name. Throws likewise.
  std::vector<std::string> files() const;

 private:
  /// Reads `path` or `train_path`.
  std::vector<WeightedPath> corpora() const;
  void check_paths(const Options& options, Problems& problems) const;
  /// Returns the corpora of `valid_path` as validation sets.
  std::vector<SplitPaths> named_corpora() const;
};

}  // namespace trireme::app
