#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/app/options/options.hpp"
#include "src/app/options/problems.hpp"
#include "src/data/dataset/gpt/fim_samples.hpp"
#include "src/data/dataset/token_store.hpp"

namespace trireme::app {

struct FillInMiddleOptions {
  double rate = 0;
  double spm_rate = 0.5;
  std::string split_token;  ///< a token's text or number, as those below; empty: none
  std::optional<double> fragment_rate;
  std::string no_prefix;
  std::string prefix_token = "<fim_prefix>", middle_token = "<fim_middle>", suffix_token = "<fim_suffix>";
  std::string end_token;  ///< empty: not named

  void declare(Options& options);
  void check(const Options& options, Problems& problems) const;
  /// Returns the options of samples of this corpus for a model of `vocabulary_size`; nothing for a rate of 0. Throws
  /// ConfigError for tokens that are not in the vocabulary.
  std::optional<data::FimOptions> settled(const data::CorpusInfo& corpus, std::int64_t vocabulary_size) const;
};

}  // namespace trireme::app
